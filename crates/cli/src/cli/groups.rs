//! The groups of commands in `--help` and docs/cli.md.

use clap::{Command, CommandFactory as _};

use super::Cli;

/// Each group's title and commands.
pub const GROUPS: [(&str, &[&str]); 6] = [
    ("Serve", &["run", "stdio", "demo"]),
    (
        "Configure",
        &["add", "import", "connect", "validate", "schema"],
    ),
    (
        "Test servers",
        &[
            "check",
            "list",
            "find",
            "call",
            "diff",
            "trace-test",
            "mock",
            "replay",
            "witness",
        ],
    ),
    (
        "Operate a running gateway",
        &[
            "status",
            "traces",
            "logs",
            "record",
            "approvals",
            "reload",
            "enable",
            "disable",
            "restart",
            "end-session",
        ],
    ),
    (
        "Access and records",
        &[
            "keys",
            "login",
            "logout",
            "connections",
            "state",
            "policy",
            "pin",
            "audit",
            "lean",
        ],
    ),
    ("Shell", &["completions", "man"]),
];

/// The widest line, as for the options.
const WIDTH: usize = 100;
/// The column in which descriptions begin.
const COLUMN: usize = 15;

/// The command line, with the commands in groups in its help.
pub fn command() -> Command {
    let all = Cli::command();
    let mut groups = String::new();
    for (title, names) in GROUPS {
        groups += &format!("\n{title}:\n");
        for name in names {
            let about = all.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            groups += &format!("  {name:<width$}{}\n", wrapped(&about), width = COLUMN - 2);
        }
    }
    all.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\nOptions:\n{{options}}{{after-help}}"
    ))
}

/// A description in lines that fit beside the names.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let is_full = lines.last().is_some_and(|line| {
            !line.is_empty() && COLUMN + line.chars().count() + 1 + word.chars().count() > WIDTH
        });
        if is_full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join(&format!("\n{}", " ".repeat(COLUMN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let all = Cli::command();
        let mut shown: Vec<&str> = all
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(Command::get_name)
            .collect();
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, shown);
    }

    #[test]
    fn help_has_groups_and_fits_the_width() {
        let help = command().render_help().to_string();
        for text in [
            "Operate a running gateway:\n  status ",
            "Options:",
            "Exit status",
        ] {
            assert!(help.contains(text), "{text}: {help}");
        }
        assert!(
            help.lines().all(|line| line.chars().count() <= WIDTH),
            "{help}"
        );
    }
}
