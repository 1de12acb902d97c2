//! `fanlight logs`: the standard error of a running gateway's server processes.

use fanlight_protocol::visible::plain;
use serde_json::Value;

use super::Admin;
use super::admin::{elements, text};
use super::change::no_such_server;
use super::style::Style;
use super::style::clock;
use crate::cli::{CommonArgs, LogsArgs};
use crate::{Result, complain, out, say};

/// The limit of characters shown of one line. The gateway has already cut it.
const SHOWN: usize = 5000;

/// Prints the last lines, and with `--follow` also new ones until the gateway ends.
pub async fn logs(args: &LogsArgs, common: &CommonArgs) -> Result {
    let admin = Admin::find(&args.admin, common).await?;
    let path = match &args.server {
        Some(server) => vec!["backends", server, "log"],
        None => vec!["log"],
    };
    let text = match (admin.get(&path, &[]).await, &args.server) {
        (Err(failure), Some(server)) if failure.is_not_found() => {
            return Err(no_such_server(&admin, server).await);
        }
        (text, _) => text?,
    };
    let log = admin.json(&text)?;
    let kept: Vec<&Value> = elements(&log, "lines").collect();
    if kept.is_empty() && !args.json {
        complain(
            "no lines yet: Fanlight logs the standard error of servers that it starts, not of servers with a URL\n",
        );
    }
    let lines = Lines {
        json: args.json,
        style: Style::for_stdout(),
    };
    let hidden = kept.len().saturating_sub(args.lines);
    if !args.follow {
        kept.into_iter()
            .skip(hidden)
            .for_each(|line| lines.print(line));
        return Ok(());
    }
    let mut stream = admin.follow(&path).await?;
    // The stream begins with the stored lines, of which there may be more by now.
    let mut skipped = 0;
    while let Some(event) = admin.next_event(&mut stream).await? {
        if skipped < hidden {
            skipped += 1;
        } else if event.name.as_ref() == b"line" {
            lines.print(&admin.json(&event.data)?);
        }
    }
    Err(admin.ended())
}

/// How lines are printed.
struct Lines {
    json: bool,
    style: Style,
}

impl Lines {
    fn print(&self, line: &Value) {
        match self.json {
            true => out::json(&line.to_string()),
            false => say!("{}", self.format(line)),
        }
    }

    /// Formats a line as "09:21:22.120Z library  text". A mark shows text that a server must not
    /// write to its standard output.
    fn format(&self, line: &Value) -> String {
        let text = |key: &str| text(line, key);
        let at = clock(line["atMs"].as_f64().unwrap_or_default());
        let mark = if text("stream") == "stdout" {
            self.style.warn("(stdout) ")
        } else {
            String::new()
        };
        let server = self.style.bold(&plain(text("server"), 60));
        format!(
            "{} {server}  {mark}{}",
            self.style.dim(&at),
            plain(text("text"), SHOWN)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_safe_to_print() {
        let line = serde_json::json!({"server": "a", "atMs": 3_723_004.0, "stream": "stdout", "text": "x\u{1b}[2J"});
        let lines = Lines {
            json: false,
            style: Style::plain(80),
        };
        assert_eq!(lines.format(&line), "01:02:03.004Z a  (stdout) x\\u001b[2J");
    }
}
