//! What to set on another device so that its Claude Code sends its requests here: one block to copy, for a shell, for
//! Claude Code's own settings, and for VS Code. It is printed and never written into anybody's settings.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// How a device shows its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// It has no Claude login; the key is its bearer.
    Token,
    /// It has a Claude login of its own, and sends the key beside it.
    Login,
}

/// Where the block goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Form {
    /// A shell, or its profile.
    Shell,
    /// Claude Code's `settings.json`.
    Settings,
    /// VS Code's `settings.json`.
    Vscode,
}

/// The address of a router, as a device needs it.
pub fn url(ip: IpAddr, port: u16) -> String {
    format!("http://{}", SocketAddr::new(ip, port))
}

/// The environment of Claude Code on a device with that key.
pub fn environment(url: &str, key: &str, mode: Mode) -> Vec<(&'static str, String)> {
    let mut all = vec![("ANTHROPIC_BASE_URL", url.to_owned())];
    all.push(match mode {
        Mode::Token => ("ANTHROPIC_AUTH_TOKEN", key.to_owned()),
        Mode::Login => ("ANTHROPIC_CUSTOM_HEADERS", format!("x-router-key: {key}")),
    });
    if mode == Mode::Token {
        all.push(("ENABLE_PROMPT_CACHING_1H", "1".to_owned()));
    }
    // The client looks at the base URL and would load every MCP tool into the context.
    all.push(("ENABLE_TOOL_SEARCH", "true".to_owned()));
    all
}

/// The block to copy.
pub fn block(url: &str, key: &str, mode: Mode, form: Form) -> String {
    let all = environment(url, key, mode);
    match form {
        Form::Shell => {
            let line = |(name, value): &(&str, String)| format!("export {name}={}\n", quoted(value));
            all.iter().map(line).collect()
        }
        Form::Settings => {
            let env: Map<String, Value> = all
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect();
            format!("{:#}\n", json!({"env": env}))
        }
        Form::Vscode => {
            let list: Vec<Value> = all
                .iter()
                .map(|(name, value)| json!({"name": name, "value": value}))
                .collect();
            format!("{:#}\n", json!({"claudeCode.environmentVariables": list}))
        }
    }
}

/// Quoted only where a shell would read it otherwise.
fn quoted(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/[]".contains(&byte);
    match value.bytes().all(plain) && !value.contains('[') {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', r"'\''")),
    }
}

/// What a person at the device should know beforehand.
pub fn notes(mode: Mode) -> &'static [&'static str] {
    match mode {
        Mode::Token => &[
            "Remote Control, cloud features and claude.ai connectors need a direct login, and are off meanwhile.",
            "`/usage` shows nothing; `claude-proxy-router status` on the router's machine does.",
        ],
        Mode::Login => &[
            "Leave ANTHROPIC_AUTH_TOKEN unset: the device's own login stays in use, and crosses the way to the router.",
            "Anthropic sees the device's key once at each start of Claude Code, so it must not be the settings' own key.",
            "Remote Control is off meanwhile, and `/usage` shows the device's own login, not the seat that answered.",
        ],
    }
}

/// All that a device's own `claude-proxy-router` needs to know, in one line: what `join` takes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// The router's address.
    pub url: String,
    /// The device's key.
    pub key: String,
    /// How it shows the key.
    pub mode: Mode,
}

const SCHEME: &str = "claude-proxy-router://";

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Token => "token",
            Mode::Login => "login",
        };
        let address = self.url.trim_start_matches("http://");
        write!(f, "{SCHEME}{address}/{mode}#{}", self.key)
    }
}

/// The key stays out of it.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({} {:?})", self.url, self.mode)
    }
}

impl std::str::FromStr for Link {
    type Err = NoLink;

    fn from_str(text: &str) -> Result<Self, NoLink> {
        let rest = text.trim().strip_prefix(SCHEME).ok_or(NoLink)?;
        let (place, key) = rest.split_once('#').ok_or(NoLink)?;
        let (address, mode) = place.split_once('/').ok_or(NoLink)?;
        let mode = match mode {
            "token" => Mode::Token,
            "login" => Mode::Login,
            _ => return Err(NoLink),
        };
        let is_key = key.len() >= 8 && key.bytes().all(|byte| byte.is_ascii_graphic());
        let url = format!("http://{address}");
        let is_url = url
            .parse::<http::Uri>()
            .is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()));
        match is_key && is_url {
            true => Ok(Self {
                url,
                key: key.to_owned(),
                mode,
            }),
            false => Err(NoLink),
        }
    }
}

/// The text is no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("that is not a link of Claude Proxy Router; `devices add` on the router's machine prints one")]
pub struct NoLink;

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://100.64.0.1:18787";
    const KEY: &str = "rk-0123";

    #[test]
    fn a_block_for_each_place_in_both_modes() {
        assert_eq!(
            block(URL, KEY, Mode::Token, Form::Shell),
            "export ANTHROPIC_BASE_URL=http://100.64.0.1:18787\n\
             export ANTHROPIC_AUTH_TOKEN=rk-0123\n\
             export ENABLE_PROMPT_CACHING_1H=1\n\
             export ENABLE_TOOL_SEARCH=true\n"
        );
        assert_eq!(
            block(URL, KEY, Mode::Login, Form::Shell),
            "export ANTHROPIC_BASE_URL=http://100.64.0.1:18787\n\
             export ANTHROPIC_CUSTOM_HEADERS='x-router-key: rk-0123'\n\
             export ENABLE_TOOL_SEARCH=true\n"
        );
        for mode in [Mode::Token, Mode::Login] {
            let settings: Value = serde_json::from_str(&block(URL, KEY, mode, Form::Settings)).unwrap();
            let vscode: Value = serde_json::from_str(&block(URL, KEY, mode, Form::Vscode)).unwrap();
            let all = environment(URL, KEY, mode);
            assert_eq!(settings["env"].as_object().unwrap().len(), all.len());
            for (at, (name, value)) in all.iter().enumerate() {
                assert_eq!(settings["env"][name], *value);
                assert_eq!(
                    vscode["claudeCode.environmentVariables"][at],
                    json!({"name": name, "value": value})
                );
            }
        }
    }

    #[test]
    fn a_shell_reads_back_what_was_meant() {
        for value in ["plain", "two words", "it's", "$HOME `x`", "http://[fd7a::1]:1", ""] {
            let script = format!("x={}; printf %s \"$x\"", quoted(value));
            let output = std::process::Command::new("/bin/sh")
                .args(["-c", &script])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
        }
    }

    #[test]
    fn a_link_says_all_and_shows_no_key_in_a_log() {
        for (url, mode) in [(URL, Mode::Token), ("http://[fd7a::1]:18787", Mode::Login)] {
            let link = Link {
                url: url.into(),
                key: "rk-01234567".into(),
                mode,
            };
            let text = link.to_string();
            assert!(
                text.starts_with("claude-proxy-router://") && !text.contains(' '),
                "{text}"
            );
            assert_eq!(text.parse::<Link>(), Ok(link.clone()));
            assert!(!format!("{link:?}").contains("01234567"));
        }
        for no in [
            "",
            "http://x/token#rk-01234567",
            "claude-proxy-router://x/token",
            "claude-proxy-router:///token#rk-01234567",
            "claude-proxy-router://x:1/other#rk-01234567",
            "claude-proxy-router://x:1/token#a b c d e f",
        ] {
            assert_eq!(no.parse::<Link>(), Err(NoLink), "{no}");
        }
    }
}
