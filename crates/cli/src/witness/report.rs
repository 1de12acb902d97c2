//! The report of a witness: text, JSON, the badge, and the exit status.

use std::collections::{BTreeMap, BTreeSet};

use fanlight_protocol::visible::plain;
use serde_json::{Value, json};

use super::cases::ALL;
use super::comparison::Outcome;
use super::examination::{Verdict, is_judged};
use super::gateway::{Run, Transport};
use crate::cli::WitnessArgs;
use crate::observe::style::Style;
use crate::{Result, counted, out, say};

/// The longest shown text.
const SHOWN: usize = 200;

/// The outcomes of all runs.
#[derive(Default)]
pub(super) struct Report {
    runs: Vec<(Run, Vec<Verdict>, Option<String>)>,
    pub(super) remarks: BTreeSet<String>,
}

impl Run {
    fn transport_name(self) -> &'static str {
        match self.transport {
            Transport::Http => "HTTP",
            Transport::Stdio => "stdio",
        }
    }
}

impl Report {
    pub(super) fn add(&mut self, run: Run, verdicts: Vec<Verdict>) {
        self.runs.push((run, verdicts, None));
    }

    /// Adds a run that could not be judged.
    pub(super) fn skip(&mut self, run: Run, outcome: Outcome, why: Option<String>) {
        let cases = ALL.cases.iter().filter(|case| is_judged(case, run));
        let verdicts = cases.map(|case| Verdict {
            case,
            outcome,
            seen: None,
        });
        self.runs.push((run, verdicts.collect(), why));
    }

    fn count(&self, is_counted: impl Fn(Outcome) -> bool) -> usize {
        let verdicts = self.runs.iter().flat_map(|(_, verdicts, _)| verdicts);
        verdicts.filter(|it| is_counted(it.outcome)).count()
    }

    /// Prints the report.
    pub(super) fn finish(&self, args: &WitnessArgs) -> Result {
        let kept = self.count(|it| it == Outcome::Kept);
        let judged = self.count(|it| it >= Outcome::Kept);
        match args.json {
            true => out::json(&self.json().to_string()),
            false => self.print(),
        }
        if let Some(path) = &args.badge {
            let written = std::fs::write(path, badge(kept, judged));
            written.map_err(|error| failure!("{}: {error}", path.display()))?;
        }
        match judged - kept {
            0 if judged == 0 => Err(usage!("nothing could be judged")),
            0 => Ok(()),
            lost => Err(failure!(
                "{} of {judged} did not arrive as sent",
                counted(lost, "part")
            )),
        }
    }

    fn json(&self) -> Value {
        let (mut cases, mut skipped) = (Vec::new(), Vec::new());
        for (run, verdicts, why) in &self.runs {
            let transport = run.transport_name().to_ascii_lowercase();
            let of_run =
                json!({ "era": run.era.as_str(), "transport": transport, "servers": run.servers });
            for verdict in verdicts {
                let mut case = of_run.clone();
                case["name"] = json!(verdict.case.name);
                case["outcome"] = json!(verdict.outcome.name());
                if let Some(seen) = &verdict.seen {
                    case["seen"] = json!(plain(seen, SHOWN));
                }
                cases.push(case);
            }
            if let Some(why) = why {
                let mut one = of_run;
                one["why"] = json!(plain(why, SHOWN));
                skipped.push(one);
            }
        }
        json!({ "cases": cases, "notOffered": skipped, "remarks": self.remarks })
    }

    fn print(&self) {
        let style = Style::for_stdout();
        for (run, verdicts, why) in &self.runs {
            let title = format!(
                "{}, {} over {}",
                run.era,
                counted(run.servers, "server"),
                run.transport_name()
            );
            let mut counts = BTreeMap::<Outcome, usize>::new();
            for verdict in verdicts {
                *counts.entry(verdict.outcome).or_default() += 1;
            }
            let counts: Vec<String> = counts
                .iter()
                .rev()
                .map(|(outcome, count)| format!("{count} {}", outcome.name()))
                .collect();
            say!("{}: {}", style.bold(&title), counts.join(", "));
            if let Some(why) = why {
                say!("  {}", plain(why, SHOWN));
            }
            for Verdict {
                case,
                outcome,
                seen,
            } in verdicts.iter().filter(|it| it.outcome > Outcome::Kept)
            {
                let seen = seen.as_ref().map(|it| format!(": {}", plain(it, SHOWN)));
                let outcome = style.bad(&format!("{:<9}", outcome.name()));
                say!("  {outcome} {}{}", case.name, seen.unwrap_or_default());
            }
        }
        for remark in &self.remarks {
            say!("{} {remark}", style.dim("remark:"));
        }
    }
}

/// A badge as SVG.
fn badge(kept: usize, judged: usize) -> String {
    let colour = match judged - kept {
        _ if judged == 0 => "#9f9f9f",
        0 => "#3a7d1e",
        _ => "#b04a00",
    };
    let text = format!("{kept} of {judged} kept");
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="180" height="20" role="img" aria-label="MCP witness: {text}"><title>MCP witness: {text}</title><rect width="180" height="20" rx="3" fill="#444"/><rect x="82" width="98" height="20" rx="3" fill="{colour}"/><g fill="#fff" font-family="Verdana,sans-serif" font-size="11"><text x="6" y="14">MCP witness</text><text x="88" y="14">{text}</text></g></svg>
"##
    )
}
