//! The default responses of a server of each era, and the members that its results must have.

use super::Reply;

/// The handshake of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Up to 2025-11-25, with `initialize`.
    Legacy,
    /// 2026-07-28, with `server/discover`.
    Modern,
}

impl Era {
    /// The default response of this era's server.
    pub(super) fn reply(self, method: &str) -> Reply {
        let list = match method {
            "tools/list" => "tools",
            "resources/list" => "resources",
            "resources/templates/list" => "resourceTemplates",
            "prompts/list" => "prompts",
            "initialize" if self == Self::Legacy => return Reply::result(INITIALIZE_RESULT),
            "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
                if self == Self::Legacy =>
            {
                return Reply::result("{}");
            }
            "server/discover" if self == Self::Modern => {
                return Reply::result(self.cacheable(DISCOVER_MEMBERS));
            }
            "initialize" => {
                let error = r#"{"code":-32022,"message":"2026-07-28 only","data":{"supported":["2026-07-28"],"requested":"?"}}"#;
                return Reply::error(error);
            }
            _ => return Reply::error(r#"{"code":-32601,"message":"Method not found"}"#),
        };
        Reply::result(self.cacheable(&format!(r#""{list}":[]"#)))
    }

    /// A whole result with the members that a list or read must have in this era.
    pub fn cacheable(self, members: &str) -> String {
        match self {
            Self::Legacy => format!("{{{members}}}"),
            Self::Modern => {
                format!(r#"{{"resultType":"complete",{members},"ttlMs":0,"cacheScope":"private"}}"#)
            }
        }
    }

    /// A whole result with the members that any result must have in this era.
    pub fn complete(self, members: &str) -> String {
        match self {
            Self::Legacy => format!("{{{members}}}"),
            Self::Modern if members.is_empty() => r#"{"resultType":"complete"}"#.to_owned(),
            Self::Modern => format!(r#"{{"resultType":"complete",{members}}}"#),
        }
    }
}

impl Era {
    /// The response to this era's first request from a server with these raw capabilities.
    pub(super) fn handshake(self, capabilities: &str) -> (&'static str, String) {
        match self {
            Self::Legacy => (
                "initialize",
                INITIALIZE_RESULT.replace(LEGACY_CAPABILITIES, capabilities),
            ),
            Self::Modern => {
                let members = DISCOVER_MEMBERS.replace(MODERN_CAPABILITIES, capabilities);
                ("server/discover", self.cacheable(&members))
            }
        }
    }
}

const LEGACY_CAPABILITIES: &str =
    r#"{"tools":{},"resources":{},"prompts":{},"completions":{},"logging":{}}"#;
const MODERN_CAPABILITIES: &str = r#"{"tools":{},"resources":{},"prompts":{},"completions":{}}"#;
const INITIALIZE_RESULT: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{},"prompts":{},"completions":{},"logging":{}},"serverInfo":{"name":"scripted","version":"1"}}"#;
const DISCOVER_MEMBERS: &str = r#""supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{},"prompts":{},"completions":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"1"}}"#;
