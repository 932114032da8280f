//! Two devices in networks of their own, each with the genuine Claude Code, one in each mode; the router stands between.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails where it stands")]
#![cfg(target_os = "linux")]

mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use support::own::{GLANCE, GUARD, Own, is_inside};

const NAME: &str = "two_devices_of_one_owner_each_reach_their_seats_and_one_is_shut_out_while_it_speaks";

/// A device's network: a namespace that lives as long as this, and a cable to the router's.
struct Network {
    holder: std::process::Child,
    /// The router, as it is seen from there.
    router: Ipv4Addr,
}

impl Network {
    fn new(number: u8) -> Self {
        let mut holder = Command::new("unshare").args(["--net", "sleep", "600"]).spawn().unwrap();
        let (here, there) = (format!("veth{number}"), "cable");
        let pid = holder.id().to_string();
        // Its namespace is made by the time that it is another one than ours.
        let space = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        while space(&pid).is_none() || space(&pid) == space("self") {
            assert!(holder.try_wait().unwrap().is_none());
            std::thread::yield_now();
        }
        let router = Ipv4Addr::new(10, 77, number, 1);
        run(
            "ip",
            &[
                "link", "add", &here, "type", "veth", "peer", "name", there, "netns", &pid,
            ],
        );
        run("ip", &["address", "add", &format!("{router}/24"), "dev", &here]);
        run("ip", &["link", "set", &here, "up"]);
        let own = format!("10.77.{number}.2/24");
        for arguments in [
            &["link", "set", "lo", "up"][..],
            &["address", "add", &own, "dev", there],
            &["link", "set", there, "up"],
        ] {
            run("nsenter", &[&["--net", "--target", &pid, "ip"], arguments].concat());
        }
        Self { holder, router }
    }

    fn pid(&self) -> String {
        self.holder.id().to_string()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A device with Claude Code, in its network.
struct Device {
    network: Network,
    own: Own,
    environment: Vec<(String, String)>,
}

impl Device {
    /// One that is set up by the block which `devices add` printed.
    async fn new(network: Network, block: &str) -> Self {
        let environment = block.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
            Some((name.to_owned(), value.trim_matches('\'').to_owned()))
        });
        let device = Self {
            network,
            own: Own::empty().await,
            environment: environment.collect(),
        };
        assert!(device.environment.len() >= 3, "{block}");
        for folder in ["config", "desk", "tmp"] {
            std::fs::create_dir(device.own.path(folder)).unwrap();
        }
        device
    }

    /// The same with a Claude login of its own.
    fn logged_in(self) -> Self {
        let login = json!({"claudeAiOauth": {
            "accessToken": "sk-ant-oat01-device", "refreshToken": "sk-ant-ort01-device",
            "expiresAt": 4_102_444_800_000_i64, "scopes": ["user:inference", "user:profile"], "subscriptionType": "max",
        }});
        std::fs::write(self.own.path("config/.credentials.json"), login.to_string()).unwrap();
        self
    }

    fn key(&self) -> &str {
        let named = |name: &str| {
            self.environment
                .iter()
                .find(|(there, _)| there == name)
                .map(|(_, value)| &**value)
        };
        named("ANTHROPIC_AUTH_TOKEN").unwrap_or_else(|| {
            named("ANTHROPIC_CUSTOM_HEADERS")
                .unwrap()
                .strip_prefix("x-router-key: ")
                .unwrap()
        })
    }

    fn says(&self, claude: &Path, prompt: &str) -> tokio::process::Command {
        let pid = self.network.pid();
        let mut command = self.own.bare("nsenter", &["--net", "--target", &pid]);
        command
            .arg(claude)
            .args(["-p", prompt, "--output-format", "stream-json", "--verbose"])
            .env("TMPDIR", self.own.path("tmp"))
            .env("CLAUDE_CONFIG_DIR", self.own.path("config"))
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.own.path("desk"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

/// The last line that Claude Code printed.
fn result(output: &std::process::Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_else(|| panic!("{output:?}"));
    serde_json::from_str(last).unwrap()
}

#[tokio::test]
async fn two_devices_of_one_owner_each_reach_their_seats_and_one_is_shut_out_while_it_speaks() {
    let Some(claude) = std::env::var_os("GENUINE_CLAUDE") else {
        eprintln!("skipped: GENUINE_CLAUDE does not name a Claude Code; `scripts/test` does");
        return;
    };
    if !is_inside(NAME, "--net", "ip link set lo up &&") {
        return;
    }
    let claude = Path::new(&claude);
    let networks = [Network::new(1), Network::new(2)];
    let hosts: Vec<String> = networks.iter().map(|network| network.router.to_string()).collect();
    let own = Own::new().await;
    let local = IpAddr::from(Ipv4Addr::LOCALHOST);
    let (_router, address) = own
        .start(&json!({"host": ["127.0.0.1", hosts[0], hosts[1]]}), local)
        .await;
    let port = address.port();

    // Each device is told the address that it reaches.
    let block = |said: &str, router: Ipv4Addr| {
        let here = said
            .lines()
            .find_map(|line| line.strip_prefix("export ANTHROPIC_BASE_URL="))
            .unwrap();
        said.replace(here, &format!("http://{}", SocketAddr::new(router.into(), port)))
    };
    let laptop = own.done(&["devices", "add", "laptop", "--form", "shell"]).await;
    let office = own
        .done(&[
            "devices", "add", "office", "--form", "shell", "--mode", "login", "--seat", "spare",
        ])
        .await;
    let [one, two] = networks;
    let (near, far) = (block(&laptop, one.router), block(&office, two.router));
    let laptop = Device::new(one, &near).await;
    let office = Device::new(two, &far).await.logged_in();

    for (device, seat) in [(&laptop, "work"), (&office, "spare")] {
        let output = timeout(GUARD, device.says(claude, "say hi").output())
            .await
            .expect("it ends")
            .unwrap();
        assert_eq!(
            result(&output)["result"],
            format!("Hello from the sandbox, served by seat `{seat}`."),
            "{output:?}"
        );
    }

    // Both speak; one of them is shut out.
    let some = sandbox::SseStep::event;
    let steps = vec![
        some(
            json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [],
            "model": "claude-opus-5-5", "stop_reason": null, "usage": {"input_tokens": 1, "output_tokens": 1}}}),
        ),
        some(json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})),
        some(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "first"}})),
        sandbox::SseStep::Wait(600_000),
    ];
    own.sandbox.take_requests();
    own.sandbox
        .script_always("*", "/v1/messages", sandbox::Answer::sse(steps));
    let speaking = laptop.says(claude, "say much").spawn().unwrap();
    timeout(GUARD, async {
        while own
            .sandbox
            .requests()
            .iter()
            .all(|request| request.path != "/v1/messages")
        {
            sleep(GLANCE).await;
        }
    })
    .await
    .expect("its turn is under way");
    own.done(&["devices", "revoke", "laptop"]).await;
    let ended = timeout(GUARD, speaking.wait_with_output())
        .await
        .expect("what it asks again is refused")
        .unwrap();
    let told = result(&ended);
    assert_eq!(
        (ended.status.code(), &told["api_error_status"]),
        (Some(1), &json!(401)),
        "{told}"
    );
    assert!(
        told["result"].as_str().unwrap().contains("does not know this key"),
        "{told}"
    );

    let now = own.status().await;
    assert_eq!(
        now["seats"]
            .as_array()
            .unwrap()
            .iter()
            .map(|seat| seat["inFlight"].as_u64().unwrap())
            .sum::<u64>(),
        0
    );
    let output = own.output();
    assert!(
        !output.contains(laptop.key()) && !output.contains(office.key()) && !output.contains("sk-ant-oat01-device")
    );
}
