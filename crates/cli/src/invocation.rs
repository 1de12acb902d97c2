//! How this process was started, for suggested commands and entries.

use std::path::{Path, PathBuf};

use fanlight_config::ListenAddress;
use fanlight_config::client_files::for_shell;

use crate::connect::absolute;
use crate::{CommonArgs, configuration};

/// How this process was started. The commands that it suggests have the same program and
/// configuration.
pub struct Invocation {
    /// The program as it was called.
    program: String,
    /// The files of the configuration; none for the demo.
    config: Vec<PathBuf>,
    /// Whether the files can be left out of commands, since they are the default in the current
    /// folder.
    is_found: bool,
}

impl Invocation {
    /// The invocation of this process.
    pub fn new(common: &CommonArgs) -> Self {
        let program = std::env::args_os()
            .next()
            .unwrap_or_else(|| "fanlight".into());
        let config = configuration::paths(common).unwrap_or_default();
        Self {
            program: program.to_string_lossy().into_owned(),
            config,
            is_found: common.config.is_empty(),
        }
    }

    /// The command line of another command with the same configuration.
    pub fn command(&self, words: &str) -> String {
        let options = if self.is_found && !self.config.is_empty() {
            Vec::new()
        } else {
            self.options(Path::to_owned)
        };
        self.line(words, options)
    }

    /// The command line of a command for the running gateway. `admin` is the admin listener's
    /// address if it differs from the configuration.
    pub fn admin_command(&self, words: &str, admin: Option<&ListenAddress>) -> String {
        let Some(admin) = admin else {
            return self.command(words);
        };
        let mut options = self.options(Path::to_owned);
        options.extend(["--admin".to_owned(), admin.to_string()]);
        self.line(words, options)
    }

    /// The arguments with which a client starts a gateway of its own with the same configuration,
    /// from any folder.
    pub fn stdio_arguments(&self) -> Vec<String> {
        std::iter::once("stdio".to_owned())
            .chain(self.options(absolute))
            .collect()
    }

    /// The options that choose the configuration.
    fn options(&self, path_of: impl Fn(&Path) -> PathBuf) -> Vec<String> {
        if self.config.is_empty() {
            return vec!["--demo".to_owned()];
        }
        self.config
            .iter()
            .flat_map(|path| ["--config".to_owned(), path_of(path).display().to_string()])
            .collect()
    }

    fn line(&self, words: &str, options: Vec<String>) -> String {
        let options = options
            .iter()
            .map(|option| format!(" {}", for_shell(option)))
            .collect::<String>();
        format!("{} {words}{options}", for_shell(&self.program))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(config: &[&str], is_found: bool) -> Invocation {
        Invocation {
            program: "fanlight".into(),
            config: config.iter().map(PathBuf::from).collect(),
            is_found,
        }
    }

    #[test]
    fn commands_have_the_configuration_of_the_gateway() {
        assert_eq!(
            started(&["fanlight.yaml"], true).command("list"),
            "fanlight list"
        );
        assert_eq!(started(&[], true).command("list"), "fanlight list --demo");
        let two = started(&["a b.yaml", "it's.json"], false);
        assert_eq!(
            two.command("status"),
            r"fanlight status --config 'a b.yaml' --config 'it'\''s.json'"
        );
        assert_eq!(two.admin_command("status", None), two.command("status"));
    }

    #[test]
    fn commands_for_the_gateway_say_where_it_is_unless_the_configuration_does() {
        let admin = "127.0.0.1:9000".parse().unwrap();
        let found = started(&["fanlight.yaml"], true);
        let expected = "fanlight status --config fanlight.yaml --admin 127.0.0.1:9000";
        assert_eq!(found.admin_command("status", Some(&admin)), expected);
    }

    #[test]
    fn arguments_of_a_client_name_absolute_paths() {
        let arguments = started(&["fanlight.yaml"], true).stdio_arguments();
        assert_eq!(arguments[..2], ["stdio", "--config"]);
        assert!(Path::new(&arguments[2]).is_absolute(), "{arguments:?}");
        assert_eq!(started(&[], false).stdio_arguments(), ["stdio", "--demo"]);
    }
}
