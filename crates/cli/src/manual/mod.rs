//! Generates completions, manual pages and docs/cli.md from the definitions of the command line.

#[cfg(test)]
mod reference;

use std::fs;
use std::io::Write as _;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Result;

/// Prints the completions of a shell.
pub fn completions(shell: Shell) -> Result {
    let mut text = Vec::new();
    clap_complete::generate(
        shell,
        &mut visible_commands(&Cli::command()),
        "fanlight",
        &mut text,
    );
    print(&text);
    Ok(())
}

/// The command line without hidden commands, which completions would otherwise offer.
fn visible_commands(all: &Command) -> Command {
    Command::new("fanlight")
        .version(env!("CARGO_PKG_VERSION"))
        .args(all.get_arguments().cloned())
        .groups(all.get_groups().cloned())
        .subcommands(
            all.get_subcommands()
                .filter(|command| !command.is_hide_set())
                .cloned(),
        )
}

/// Prints the manual page of `fanlight`, or writes the pages of all commands into a folder.
pub fn pages(folder: Option<&Path>) -> Result {
    let Some(folder) = folder else {
        let mut text = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut text)?;
        print(&text);
        return Ok(());
    };
    let cannot = |error| failure!("cannot write manual pages to {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(cannot)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(cannot)
}

/// Prints text for programs, unescaped. It is no failure if the reader is gone.
fn print(text: &[u8]) {
    let _ = std::io::stdout().lock().write_all(text);
}
