//! `fanlight find`: what `find_tools` finds, and why.

use std::fs;
use std::path::Path;

use fanlight_gateway::Gateway;
use fanlight_gateway::catalogue::{FoundTool, ListKind, ListView};
use fanlight_protocol::visible::plain;
use itertools::Itertools as _;
use serde::Deserialize;

use super::list::incomplete;
use crate::cli::FindArgs;
use crate::endpoints::find_named;
use crate::observe::columns::{self, Column};
use crate::observe::style::Style;
use crate::{Failure, Result, say};

/// The place within which an expected tool must be found, if its line names none.
const WITHIN: usize = 5;
/// The number of results that are searched for an expected tool.
const LOOKED_AT: usize = 100;

/// A line of the file of expectations.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    query: String,
    expect: Vec<String>,
    within: Option<usize>,
}

/// Prints the tools that a query finds, or checks a file of expectations.
pub async fn find(gateway: &Gateway, args: &FindArgs) -> Result {
    let endpoint = find_named(&args.endpoint, gateway)?;
    let tools = gateway.catalogue(ListKind::Tools, &endpoint).await;
    let missing = incomplete(&tools).collect_vec();
    match &args.expect {
        Some(file) => check(&tools, file)?,
        None => {
            let query = args.query.as_deref().unwrap_or_default();
            print(&tools.find_tools(query, args.limit));
        }
    }
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Failure::other(missing.join("\n")))
    }
}

fn print(found: &[FoundTool]) {
    if found.is_empty() {
        say!("nothing found");
        return;
    }
    let mut ranks = 1..;
    let why = |tool: &FoundTool| {
        let mut matched = tool.why.iter().map(|one| match one.word == one.term {
            true => format!("{} {:.1}", one.word, one.score),
            false => format!("{} as {} {:.1}", one.word, one.term, one.score),
        });
        matched.join(", ")
    };
    let columns = [
        Column::numbers("RANK", found, |_| {
            ranks.next().unwrap_or(0_usize).to_string()
        }),
        Column::whole("NAME", found, |tool| plain(&tool.name, 300)),
        Column::whole("SERVER", found, |tool| tool.server.clone()),
        Column::numbers("SCORE", found, |tool| format!("{:.2}", tool.score)),
        Column::words("WHY (STEMS)", found, |tool| plain(&why(tool), 300)),
    ];
    let width = Style::for_stdout().table_width();
    say!("{}", columns::render(&columns, width));
}

fn check(tools: &ListView, file: &Path) -> Result {
    let place = file.display();
    let text = fs::read_to_string(file);
    let text = text.map_err(|error| usage!("{place}: {error}"))?;
    let (mut count, mut missed) = (0, Vec::new());
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let Expectation {
            query,
            expect,
            within,
        } = serde_json::from_str(line).map_err(|error| usage!("{place}:{number}: {error}"))?;
        let within = within.unwrap_or(WITHIN);
        let found = tools.find_tools(&query, LOOKED_AT.max(within));
        for name in expect {
            count += 1;
            let at = found.iter().position(|tool| tool.name == name);
            if at.is_none_or(|at| at >= within) {
                let at = at.map_or("not found".to_owned(), |at| format!("at {}", at + 1));
                missed.push(format!(
                    "{place}:{number}: {query:?}: {name} is {at}, not within {within}"
                ));
            }
        }
    }
    if missed.is_empty() {
        say!("{count} expected tools found");
        return Ok(());
    }
    missed.push(format!("{} of {count} expected tools missed", missed.len()));
    Err(Failure::other(missed.join("\n")))
}
