//! The programs whose files differ in more than the names of their members.

use super::build::{Unit, braced, expressions};
use crate::client_files::client::Client;

/// The program that reads a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Program {
    /// The client, if `fanlight connect` knows it.
    pub(super) client: Option<Client>,
    /// The name; empty if it is unknown.
    pub(super) title: &'static str,
    /// The unit of plain numbers in `timeout`.
    pub(super) unit: Unit,
    /// Rewrites its variables in Fanlight's notation.
    pub(super) notation: fn(&str) -> String,
}

impl Program {
    /// Any program: an `mcp.json` in the notation that most share.
    pub(super) const SHARED: Self = Self::other("", Unit::Either);
    pub(super) const CRUSH: Self = Self::shell("Crush", Unit::Seconds);
    pub(super) const COPILOT: Self = Self::shell("Copilot CLI", Unit::Milliseconds);
    pub(super) const AMAZON_Q: Self = Self::other("Amazon Q", Unit::Milliseconds);
    pub(super) const KIRO: Self = Self::other("Kiro", Unit::Milliseconds);
    pub(super) const LIBRE_CHAT: Self = Self::other("LibreChat", Unit::Milliseconds);
    pub(super) const CHERRY_STUDIO: Self = Self::other("Cherry Studio", Unit::Seconds);
    pub(super) const QWEN: Self = Self::shell("Qwen Code", Unit::Milliseconds);
    pub(super) const TRAE: Self = Self::other("Trae", Unit::Either);
    pub(super) const KILO: Self = Self::other("Kilo Code", Unit::Seconds);
    pub(super) const MCP_PROXY: Self = Self::other("mcp-proxy", Unit::Nanoseconds);
    pub(super) const MCP_HUB: Self = Self::other("MCPHub", Unit::Milliseconds);
    pub(super) const FAST_AGENT: Self = Self::other("fast-agent", Unit::Seconds);
    pub(super) const LITELLM: Self = Self {
        notation: rewrite_litellm,
        ..Self::other("LiteLLM", Unit::Seconds)
    };

    const fn other(title: &'static str, unit: Unit) -> Self {
        Self {
            client: None,
            title,
            unit,
            notation: rewrite_editors,
        }
    }

    /// A program with variables as in a shell.
    const fn shell(title: &'static str, unit: Unit) -> Self {
        Self {
            notation: braced,
            ..Self::other(title, unit)
        }
    }

    pub(super) fn for_client(client: Client) -> Self {
        let unit = match client {
            Client::Cline | Client::Roo | Client::Goose | Client::Codex => Unit::Seconds,
            Client::ClaudeCode
            | Client::Gemini
            | Client::LmStudio
            | Client::OpenCode
            | Client::Zed
            | Client::Continue => Unit::Milliseconds,
            _ => Unit::Either,
        };
        let notation = match client {
            Client::Gemini | Client::Goose => braced,
            Client::OpenCode => rewrite_opencode,
            Client::Continue => rewrite_continue,
            Client::Codex => str::to_owned,
            _ => rewrite_editors,
        };
        Self {
            client: Some(client),
            title: client.title(),
            unit,
            notation,
        }
    }

    pub(super) fn contains(&self, client: Client) -> bool {
        self.client == Some(client)
    }

    /// Whether the file has little else than servers. Fanlight's options may be added to such a
    /// file.
    pub(super) fn is_for_servers_alone(&self) -> bool {
        match self.client {
            Some(client) => matches!(
                client,
                Client::ClaudeDesktop
                    | Client::Cursor
                    | Client::VsCode
                    | Client::Windsurf
                    | Client::Cline
                    | Client::Roo
                    | Client::LmStudio
            ),
            None => self.title.is_empty(),
        }
    }
}

/// Rewrites editors' variables whose names Fanlight does not accept: `${/}` and
/// `${workspaceFolder:name}`.
fn rewrite_editors(text: &str) -> String {
    let text = text.replace("${/}", "/").replace("${pathSeparator}", "/");
    expressions(&text, "${workspaceFolder:", "}", &|_| {
        Some("${workspaceFolder}".to_owned())
    })
}

/// Rewrites variables, which are empty if unset, and files in the form `{file:path}`.
fn rewrite_opencode(text: &str) -> String {
    let text = expressions(text, "{env:", "}", &|name| Some(format!("${{{name}:-}}")));
    expressions(&text, "{file:", "}", &|path| {
        Some(format!("${{file:{path}}}"))
    })
}

/// Rewrites `${{ secrets.NAME }}` and `${{ inputs.NAME }}` as variables.
fn rewrite_continue(text: &str) -> String {
    let text = expressions(text, "${{", "}}", &|content| {
        let (_, name) = content.rsplit_once('.')?;
        Some(format!("${{{name}}}"))
    });
    rewrite_editors(&text)
}

/// Rewrites `os.environ/NAME`, which is a whole value.
fn rewrite_litellm(text: &str) -> String {
    text.strip_prefix("os.environ/")
        .map_or_else(|| text.to_owned(), |name| format!("${{{name}}}"))
}
