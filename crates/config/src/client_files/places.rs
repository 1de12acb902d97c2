//! The places of clients' files on each operating system.

use std::path::{Path, PathBuf};

use crate::client_files::client::Client;

/// An operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Linux and other Unix systems.
    Linux,
    /// macOS.
    MacOs,
    /// Windows.
    Windows,
}

impl System {
    /// The system for which this program was built.
    pub fn current() -> Self {
        if cfg!(windows) {
            Self::Windows
        } else if cfg!(target_os = "macos") {
            Self::MacOs
        } else {
            Self::Linux
        }
    }
}

/// The folders with files of a user's programs.
#[derive(Debug, Clone)]
pub struct Places {
    system: System,
    home: PathBuf,
    /// `~/.config`, or the value of XDG_CONFIG_HOME.
    config: PathBuf,
    /// The folder in which each desktop program has a folder.
    programs: PathBuf,
    codex: PathBuf,
}

impl Places {
    /// The folders of the user with this environment; `None` without a home folder.
    pub fn new(system: System, env: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let folder = |name: &str| {
            env(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let home = match system {
            System::Windows => folder("USERPROFILE").or_else(|| folder("HOME")),
            _ => folder("HOME"),
        }?;
        let config = folder("XDG_CONFIG_HOME")
            .filter(|path| path.is_absolute())
            .unwrap_or_else(|| home.join(".config"));
        let programs = match system {
            System::Linux => config.clone(),
            System::MacOs => home.join("Library/Application Support"),
            System::Windows => folder("APPDATA").unwrap_or_else(|| home.join("AppData/Roaming")),
        };
        let codex = folder("CODEX_HOME").unwrap_or_else(|| home.join(".codex"));
        Some(Self {
            system,
            home,
            config,
            programs,
            codex,
        })
    }

    /// The user's folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The client's files with a user's servers. The client now writes the first one.
    pub fn user_files(&self, client: Client) -> Vec<PathBuf> {
        let in_home = |file: &str| vec![self.home.join(file)];
        let windows = self.system == System::Windows;
        match client {
            Client::ClaudeDesktop => vec![self.programs.join("Claude/claude_desktop_config.json")],
            Client::ClaudeCode => in_home(".claude.json"),
            Client::Cursor => in_home(".cursor/mcp.json"),
            Client::VsCode => self.editor_files("mcp.json"),
            Client::Windsurf => in_home(".codeium/windsurf/mcp_config.json"),
            Client::Cline => {
                let name = "settings/cline_mcp_settings.json";
                let mut files =
                    self.editor_files(&format!("globalStorage/saoudrizwan.claude-dev/{name}"));
                files.push(self.home.join(".cline/data").join(name));
                files
            }
            Client::Roo => {
                let folder = "globalStorage/rooveterinaryinc.roo-cline/settings";
                let mut files = self.editor_files(&format!("{folder}/mcp_settings.json"));
                files.extend(self.editor_files(&format!("{folder}/cline_mcp_settings.json")));
                files
            }
            Client::Gemini => in_home(".gemini/settings.json"),
            Client::Codex => vec![self.codex.join("config.toml")],
            Client::Zed if windows => vec![self.programs.join("Zed/settings.json")],
            Client::Zed if self.system == System::MacOs => in_home(".config/zed/settings.json"),
            Client::Zed => vec![self.config.join("zed/settings.json")],
            Client::Goose if windows => vec![self.programs.join("Block/goose/config/config.yaml")],
            Client::Goose => vec![self.config.join("goose/config.yaml")],
            Client::OpenCode => ["opencode.json", "opencode.jsonc", "config.json"]
                .map(|name| self.config.join("opencode").join(name))
                .to_vec(),
            Client::Continue => in_home(".continue/config.yaml"),
            Client::LmStudio => in_home(".lmstudio/mcp.json"),
        }
    }

    /// Files of programs that are no [`Client`]: the user's, and below `project` the project's.
    pub fn other_files(&self, project: &Path) -> Vec<PathBuf> {
        let of_user = [
            self.config.join("crush/crush.json"),
            self.home.join(".copilot/mcp-config.json"),
            self.home.join(".aws/amazonq/mcp.json"),
            self.programs.join("Trae/User/mcp.json"),
        ];
        let both = [".qwen/settings.json", ".kiro/settings/mcp.json"];
        let of_project = [
            "crush.json",
            ".crush.json",
            ".amazonq/mcp.json",
            ".trae/mcp.json",
        ];
        let mut files = of_user.to_vec();
        files.extend(both.map(|file| self.home.join(file)));
        files.extend(
            both.iter()
                .chain(&of_project)
                .map(|file| project.join(file)),
        );
        files
    }

    /// A file of each editor in the family of VS Code.
    fn editor_files(&self, file: &str) -> Vec<PathBuf> {
        ["Code", "Code - Insiders", "VSCodium"]
            .map(|editor| self.programs.join(editor).join("User").join(file))
            .to_vec()
    }

    /// A path with `~` for the home folder.
    pub fn abbreviate(&self, path: &Path) -> String {
        match path.strip_prefix(&self.home) {
            Ok(rest) => Path::new("~").join(rest).display().to_string(),
            Err(_) => path.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(system: System) -> Places {
        let env = |name: &str| match name {
            "HOME" => Some("/home/me".to_owned()),
            "APPDATA" => Some("/appdata".to_owned()),
            _ => None,
        };
        Places::new(system, &env).unwrap()
    }

    #[test]
    fn files_are_where_each_system_has_them() {
        let first = |system, client| {
            places(system)
                .user_files(client)
                .remove(0)
                .display()
                .to_string()
        };
        let desktop = "Claude/claude_desktop_config.json";
        assert_eq!(
            first(System::Linux, Client::ClaudeDesktop),
            format!("/home/me/.config/{desktop}")
        );
        assert_eq!(
            first(System::MacOs, Client::ClaudeDesktop),
            format!("/home/me/Library/Application Support/{desktop}")
        );
        assert_eq!(
            first(System::Windows, Client::ClaudeDesktop),
            format!("/appdata/{desktop}")
        );
        assert_eq!(
            first(System::Windows, Client::VsCode),
            "/appdata/Code/User/mcp.json"
        );
        assert_eq!(
            first(System::Linux, Client::Codex),
            "/home/me/.codex/config.toml"
        );
        assert_eq!(
            first(System::MacOs, Client::Zed),
            "/home/me/.config/zed/settings.json"
        );
    }

    #[test]
    fn home_folder_is_shown_as_a_tilde() {
        let places = places(System::Linux);
        assert_eq!(
            places.abbreviate(Path::new("/home/me/.cursor/mcp.json")),
            "~/.cursor/mcp.json"
        );
        assert_eq!(places.abbreviate(Path::new("/home/melon")), "/home/melon");
    }
}
