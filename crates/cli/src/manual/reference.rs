//! docs/cli.md, generated from the definitions of the command line. The test at the end fails if
//! the file is out of date.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use itertools::Itertools as _;

use crate::cli::{Cli, GROUPS};
use crate::failure::STATUSES;

const HEAD: &str = "\
<!-- Generated from crates/cli/src/cli.rs: UPDATE_GENERATED=1 cargo test -p fanlight-cli reference -->

# The command line

";

/// The whole page.
fn page() -> String {
    let mut all = Cli::command();
    all.build();
    let mut text = HEAD.to_owned();
    let _ = writeln!(text, "{}\n", summary(&all));
    let _ = writeln!(text, "```text\n{STATUSES}\n```\n");
    text += "Colours appear on terminals only; `NO_COLOR` switches them off. With `--json`, standard output is one \
             JSON value, and text for people goes to standard error.\n\n";
    text += "| command | |\n|---|---|\n";
    for (title, names) in GROUPS {
        let _ = writeln!(text, "| **{title}** | |");
        for command in names.iter().filter_map(|name| all.find_subcommand(name)) {
            let name = command.get_name();
            let _ = writeln!(
                text,
                "| [`{name}`](#fanlight-{name}) | {} |",
                first_line(&summary(command))
            );
        }
    }
    text += "\n## Options of every command\n\n";
    options(
        &mut text,
        all.get_arguments().filter(|arg| arg.is_global_set()),
    );
    for command in visible(&all) {
        section(
            &mut text,
            command,
            &format!("fanlight {}", command.get_name()),
            "##",
        );
    }
    text.trim_end().to_owned() + "\n"
}

fn section(text: &mut String, command: &Command, name: &str, level: &str) {
    let usage = command.clone().bin_name(name).render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let _ = writeln!(
        text,
        "{level} {name}\n\n{}.\n\n```text\n{usage}\n```\n",
        summary(command).trim_end_matches('.')
    );
    options(
        text,
        command
            .get_arguments()
            .filter(|arg| !arg.is_global_set() && arg.get_id() != "help"),
    );
    for inner in visible(command) {
        section(text, inner, &format!("{name} {}", inner.get_name()), "###");
    }
}

fn options<'a>(text: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    let rows = arguments
        .filter(|arg| !arg.is_hide_set())
        .map(row)
        .collect_vec();
    if !rows.is_empty() {
        let _ = writeln!(text, "| option | |\n|---|---|\n{}\n", rows.join("\n"));
    }
}

fn row(arg: &Arg) -> String {
    let value = || {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().map(|name| name.to_string()).join(" ")
    };
    let name = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (None, Some(long)) => format!("--{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, None) => format!("{}", arg),
    };
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let name = match arg.get_long() {
        Some(_) if takes_value => format!("{name} {}", value()),
        _ => name,
    };
    let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let choices = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect_vec();
    if takes_value && !choices.is_empty() {
        help = format!(
            "{help}{}{}",
            if help.is_empty() { "" } else { ": " },
            choices.join(", ")
        );
    }
    let defaults = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .collect_vec();
    if takes_value && !defaults.is_empty() {
        let _ = write!(help, " (default: `{}`)", defaults.join(" "));
    }
    let cell = |text: &str| text.replace('|', "\\|").replace('<', "&lt;");
    format!(
        "| `{name}` | {} |",
        cell(&help).split_whitespace().join(" ")
    )
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

fn summary(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about());
    about.map(ToString::to_string).unwrap_or_default()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[test]
fn reference_is_current() {
    fanlight_testkit::generated::assert_file("docs/cli.md", &page());
}
