//! The clients whose files Fanlight knows.

use crate::client_files::item::Language;

fanlight_protocol::named! {
    /// A client with a configuration file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Client {
        /// Claude Desktop.
        ClaudeDesktop = "claude-desktop",
        /// Claude Code.
        ClaudeCode = "claude-code",
        /// Cursor.
        Cursor = "cursor",
        /// Visual Studio Code.
        VsCode = "vscode",
        /// Windsurf.
        Windsurf = "windsurf",
        /// Cline.
        Cline = "cline",
        /// Roo Code.
        Roo = "roo",
        /// Gemini CLI.
        Gemini = "gemini",
        /// Codex.
        Codex = "codex",
        /// Zed.
        Zed = "zed",
        /// Goose.
        Goose = "goose",
        /// OpenCode.
        OpenCode = "opencode",
        /// Continue.
        Continue = "continue",
        /// LM Studio.
        LmStudio = "lm-studio",
    }
}

impl Client {
    /// The name.
    pub fn title(self) -> &'static str {
        match self {
            Self::ClaudeDesktop => "Claude Desktop",
            Self::ClaudeCode => "Claude Code",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::Windsurf => "Windsurf",
            Self::Cline => "Cline",
            Self::Roo => "Roo Code",
            Self::Gemini => "Gemini CLI",
            Self::Codex => "Codex",
            Self::Zed => "Zed",
            Self::Goose => "Goose",
            Self::OpenCode => "OpenCode",
            Self::Continue => "Continue",
            Self::LmStudio => "LM Studio",
        }
    }

    /// The client with this name; case, spaces, `-` and `_` do not count.
    pub fn from_name(name: &str) -> Option<Self> {
        let plain = |text: &str| text.replace(['-', '_', ' '], "").to_lowercase();
        let name = plain(name);
        Self::ALL
            .into_iter()
            .find(|client| name == plain(client.as_str()) || name == plain(client.title()))
    }

    /// The notation of its file.
    #[must_use]
    pub fn language(self) -> Language {
        match self {
            Self::Codex => Language::Toml,
            Self::Goose | Self::Continue => Language::Yaml,
            _ => Language::Json,
        }
    }

    /// The files of a project in which the client looks for servers. It writes the first one.
    pub fn project_files(self) -> &'static [&'static str] {
        match self {
            Self::ClaudeCode => &[".mcp.json"],
            Self::Cursor => &[".cursor/mcp.json"],
            Self::VsCode => &[".vscode/mcp.json"],
            Self::Roo => &[".roo/mcp.json"],
            Self::Gemini => &[".gemini/settings.json"],
            Self::Codex => &[".codex/config.toml"],
            Self::Zed => &[".zed/settings.json"],
            Self::OpenCode => &["opencode.json", "opencode.jsonc"],
            Self::ClaudeDesktop
            | Self::Windsurf
            | Self::Cline
            | Self::Goose
            | Self::Continue
            | Self::LmStudio => &[],
        }
    }

    /// The place of the servers in its file.
    pub fn section(self) -> &'static str {
        match self {
            Self::VsCode => "servers",
            Self::Codex => "mcp_servers",
            Self::Zed => "context_servers",
            Self::Goose => "extensions",
            Self::OpenCode => "mcp",
            _ => "mcpServers",
        }
    }

    /// Whether its file can name a server by a URL.
    pub fn speaks_http(self) -> bool {
        self != Self::ClaudeDesktop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_found_by_id_or_title() {
        for client in Client::ALL {
            assert_eq!(Client::from_name(client.as_str()), Some(client));
            assert_eq!(Client::from_name(client.title()), Some(client));
        }
        assert_eq!(Client::from_name("VS-Code"), Some(Client::VsCode));
        assert_eq!(Client::from_name("emacs"), None);
    }
}
