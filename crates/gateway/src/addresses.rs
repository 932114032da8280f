//! This machine's addresses: which of them a router may listen on, and for whom.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

/// Who reaches an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// This machine alone.
    Loopback,
    /// The owner's Tailscale devices, encrypted on the way.
    Tailscale,
    /// Whoever is on the local network, and unencrypted.
    Lan,
}

/// An address that a router may listen on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Who reaches it.
    pub kind: Kind,
    /// The address.
    pub ip: IpAddr,
    /// The interface that has it.
    pub interface: String,
}

/// An interface's address, as the system lists it.
pub type Listed = (String, IpAddr);

/// What this machine has now.
///
/// # Errors
/// If the system does not say.
pub fn list() -> io::Result<Vec<Listed>> {
    let all = if_addrs::get_if_addrs()?;
    Ok(all
        .into_iter()
        .map(|interface| (interface.name.clone(), interface.ip()))
        .collect())
}

/// The addresses worth offering, loopback first. An address of the open internet is never among them, nor one of a
/// container or a virtual machine, nor one that changes with each connection.
pub fn candidates(listed: &[Listed]) -> Vec<Candidate> {
    let tailscale: BTreeSet<&str> = listed
        .iter()
        .filter(|(interface, ip)| interface.starts_with("tailscale") || is_tailscales_own(*ip))
        .map(|(interface, _)| interface.as_str())
        .collect();
    let kind = |interface: &str, ip: IpAddr| match ip {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => Some(Kind::Loopback),
        IpAddr::V4(v4) if tailscale.contains(interface) && is_shared(v4) => Some(Kind::Tailscale),
        IpAddr::V4(v4) if v4.is_private() && !is_virtual(interface) => Some(Kind::Lan),
        _ => None,
    };
    let found: BTreeSet<Candidate> = listed
        .iter()
        .filter_map(|(interface, ip)| {
            let kind = kind(interface, *ip)?;
            Some(Candidate {
                kind,
                ip: *ip,
                interface: interface.clone(),
            })
        })
        .collect();
    found.into_iter().collect()
}

/// Those of this machine now; none where the system does not say.
pub fn here() -> Vec<Candidate> {
    candidates(&list().unwrap_or_default())
}

/// 100.64.0.0/10. Carriers use it too, so it alone does not tell Tailscale.
fn is_shared(ip: Ipv4Addr) -> bool {
    let [first, second, ..] = ip.octets();
    first == 100 && (64..128).contains(&second)
}

/// fd7a:115c:a1e0::/48, which Tailscale gives each of its interfaces beside the other one.
fn is_tailscales_own(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.segments()[..3] == [0xfd7a, 0x115c, 0xa1e0])
}

/// Whether the interface leads to containers or virtual machines on this machine, by its name.
fn is_virtual(interface: &str) -> bool {
    [
        "docker", "br-", "veth", "virbr", "vmnet", "vboxnet", "bridge", "cni", "podman", "lxc",
    ]
    .iter()
    .any(|prefix| interface.starts_with(prefix))
}

/// Whether `ip` can be listened on while the machine has the addresses in `listed`.
pub fn is_here(ip: IpAddr, listed: &[Listed]) -> bool {
    ip.is_unspecified() || ip.is_loopback() || listed.iter().any(|(_, address)| *address == ip)
}

/// Where a program of this machine reaches a router that listens on those addresses; `None` where there are none.
pub fn from_here(listening: &[IpAddr]) -> Option<IpAddr> {
    let near = listening.iter().copied().find(IpAddr::is_loopback);
    let any = listening.iter().any(IpAddr::is_unspecified);
    near.or_else(|| any.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST)))
        .or_else(|| listening.first().copied())
}

/// The address to tell another device: one of those listened on, Tailscale's before the local network's before this
/// machine's own. Where all are listened on, one of the candidates.
pub fn best(listening: &[IpAddr], candidates: &[Candidate]) -> IpAddr {
    let any = listening.iter().any(IpAddr::is_unspecified);
    let rank = |candidate: &&Candidate| match candidate.kind {
        Kind::Tailscale => 0,
        Kind::Lan => 1,
        Kind::Loopback => 2,
    };
    let known = candidates
        .iter()
        .filter(|one| any || listening.contains(&one.ip))
        .min_by_key(rank);
    let chosen = known.filter(|one| one.kind != Kind::Loopback).map(|one| one.ip);
    // An address that is configured and not there now is still the one that devices use.
    let elsewhere = listening
        .iter()
        .copied()
        .find(|ip| !ip.is_loopback() && !ip.is_unspecified());
    chosen
        .or(elsewhere)
        .or_else(|| listening.iter().copied().find(|ip| !ip.is_unspecified()))
        .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(all: &[(&str, &str)]) -> Vec<Listed> {
        all.iter()
            .map(|(interface, ip)| ((*interface).to_owned(), ip.parse().unwrap()))
            .collect()
    }

    fn kinds(all: &[(&str, &str)]) -> Vec<(Kind, String)> {
        let found = candidates(&listed(all)).into_iter();
        found
            .map(|candidate| (candidate.kind, candidate.ip.to_string()))
            .collect()
    }

    #[test]
    fn this_machine_reaches_the_router_over_loopback_wherever_it_can() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (listening, want) in [
            (&["192.168.1.2", "127.0.0.1"][..], Some("127.0.0.1")),
            (&["0.0.0.0"], Some("127.0.0.1")),
            (&["::1"], Some("::1")),
            (&["100.64.0.9", "192.168.1.2"], Some("100.64.0.9")),
            (&[], None),
        ] {
            let listening: Vec<IpAddr> = listening.iter().map(|text| ip(text)).collect();
            assert_eq!(from_here(&listening), want.map(ip), "{listening:?}");
        }
    }

    #[test]
    fn the_addresses_of_a_mac_with_tailscale() {
        let mac = [
            ("lo0", "127.0.0.1"),
            ("lo0", "::1"),
            ("lo0", "fe80::1"),
            ("en0", "192.168.1.20"),
            ("en0", "fe80::aaaa"),
            ("en0", "2001:db8::5"),
            ("utun4", "100.101.102.103"),
            ("utun4", "fd7a:115c:a1e0::6565:6667"),
            ("bridge100", "192.168.64.1"),
            ("awdl0", "fe80::bbbb"),
        ];
        let want = [
            (Kind::Loopback, "127.0.0.1".into()),
            (Kind::Tailscale, "100.101.102.103".into()),
            (Kind::Lan, "192.168.1.20".into()),
        ];
        assert_eq!(kinds(&mac), want);
    }

    #[test]
    fn an_address_that_tailscale_shares_with_others_is_not_enough() {
        assert_eq!(kinds(&[("utun4", "100.101.102.103")]), []);
        assert_eq!(kinds(&[("wwan0", "100.64.0.9")]), []);
        let linux = kinds(&[("tailscale0", "100.64.0.9"), ("tailscale0", "192.168.9.9")]);
        assert_eq!(linux[0], (Kind::Tailscale, "100.64.0.9".into()));
    }

    #[test]
    fn the_open_internet_and_containers_are_never_offered() {
        let server = [
            ("lo", "127.0.0.1"),
            ("eth0", "203.0.113.7"),
            ("eth0", "169.254.3.4"),
            ("docker0", "172.17.0.1"),
            ("br-12ab", "172.18.0.1"),
            ("eth1", "10.0.0.5"),
        ];
        let want = [(Kind::Loopback, "127.0.0.1".into()), (Kind::Lan, "10.0.0.5".into())];
        assert_eq!(kinds(&server), want);
    }

    #[test]
    fn a_device_is_told_the_address_that_reaches_farthest() {
        let here = candidates(&listed(&[
            ("lo", "127.0.0.1"),
            ("eth0", "192.168.1.20"),
            ("tailscale0", "100.64.0.9"),
        ]));
        let told = |listening: &[&str]| {
            let listening: Vec<IpAddr> = listening.iter().map(|ip| ip.parse().unwrap()).collect();
            best(&listening, &here).to_string()
        };
        assert_eq!(told(&["127.0.0.1"]), "127.0.0.1");
        assert_eq!(told(&["127.0.0.1", "192.168.1.20"]), "192.168.1.20");
        assert_eq!(told(&["127.0.0.1", "192.168.1.20", "100.64.0.9"]), "100.64.0.9");
        assert_eq!(told(&["0.0.0.0"]), "100.64.0.9");
        assert_eq!(
            told(&["127.0.0.1", "100.99.0.1"]),
            "100.99.0.1",
            "Tailscale is off for the moment"
        );
        assert_eq!(told(&["::1"]), "::1");
    }

    #[test]
    fn nw_01_loopback_and_all_addresses_are_always_here() {
        let here = listed(&[("lo", "127.0.0.1"), ("eth0", "192.168.1.20")]);
        for (ip, want) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("0.0.0.0", true),
            ("::", true),
            ("192.168.1.20", true),
            ("192.168.1.21", false),
        ] {
            assert_eq!(is_here(ip.parse().unwrap(), &here), want, "{ip}");
        }
    }
}
