//! The page with the method, the versions and the tables in Markdown, and all measured values as
//! JSON.

use std::fmt::Write as _;
use std::time::Duration;

use super::fidelity::Finding;
use super::measure::scenario;
use super::roster::{Link, Package, Peer, Source};
use super::{Contest, Entrant, Examined};
use crate::era::Era;
use crate::report::{Machine, format_value};

/// Values that belong to a gateway's process.
const OF_PROCESS: [&str; 3] = ["cpu_us_per_call", "rss_mib", "kib_per_session"];
const METHOD: &str = include_str!("method.md");

/// All measured values.
pub(super) fn json(machine: &Machine, entrants: &[Entrant], contest: &Contest) -> String {
    let versions: Vec<_> = entrants
        .iter()
        .map(|entrant| (entrant.peer.title(), entrant.version.as_str()))
        .collect();
    let file = serde_json::json!({
        "machine": machine,
        "versions": versions,
        "rounds": contest.plan.rounds,
        "seconds": contest.plan.window.as_secs_f64(),
        "connections": contest.plan.connections,
        "medians": contest.results.medians(),
        "samples": contest.results.samples,
        "examined": contest.examined,
        "notes": contest.notes,
    });
    format!("{file:#}")
}

pub(super) fn text(
    machine: &Machine,
    entrants: &[Entrant],
    contest: &Contest,
    took: Duration,
) -> String {
    let plan = &contest.plan;
    let mut text = METHOD.to_owned();
    let (rounds, seconds) = (plan.rounds, plan.window.as_secs_f64());
    let _ = writeln!(
        text,
        "\n## This run\n\n{}. Load averages: {}. {rounds} rounds of {seconds} s, {} connections in the closed loop, {} calls a \
         second at the fixed rate, {} idle sessions. It took {} minutes.",
        machine.described(),
        machine.other_load(),
        plan.connections,
        plan.rate,
        plan.sessions,
        took.as_secs().div_ceil(60)
    );
    text += &versions(entrants);
    for (link, title) in [
        (Link::Http, "In front of a server over HTTP"),
        (Link::Stdio, "In front of a server over stdio"),
    ] {
        if entrants.iter().any(|entrant| entrant.peer.link == link) {
            let _ = writeln!(
                text,
                "\n## {title}\n\n{}",
                speed(entrants, contest, link).trim_end()
            );
        }
    }
    for era in &plan.eras {
        let examined: Vec<&Examined> = contest
            .examined
            .iter()
            .filter(|one| one.era == *era)
            .collect();
        if !examined.is_empty() {
            let _ = writeln!(
                text,
                "\n## What arrives: {} ({})\n",
                era.as_str(),
                era.revision()
            );
            text += &arrives(&examined);
            text += &seen(&examined);
        }
    }
    if !contest.notes.is_empty() {
        text += "\n## Not measured\n\n";
        for note in &contest.notes {
            let _ = writeln!(
                text,
                "- {}, {}: {}",
                note.system,
                note.era.as_str(),
                code(&note.text)
            );
        }
    }
    text
}

fn versions(entrants: &[Entrant]) -> String {
    let mut text = "\n| gateway | from | version | started by |\n|---|---|---|---|\n".to_owned();
    for Entrant { peer, version, .. } in entrants {
        let from = match peer.package() {
            Some(Package::PyPi(name)) => format!("PyPI `{name}`"),
            Some(Package::Npm(name)) => format!("npm `{name}`"),
            None => "–".to_owned(),
        };
        let _ = writeln!(
            text,
            "| {} | {from} | {} | {} |",
            peer.title(),
            cell(version),
            started_by(peer)
        );
    }
    text
}

/// The command with its placeholders, without the options of one era.
fn started_by(peer: &Peer) -> String {
    let Some(recipe) = peer.recipe(Era::Legacy) else {
        return "–".to_owned();
    };
    let variables = recipe
        .variables
        .iter()
        .filter(|(name, _)| !name.contains("SECRET"));
    let variables = variables.map(|(name, value)| format!("{name}={value}"));
    let words: Vec<String> = variables.chain(recipe.words.iter().cloned()).collect();
    code(&words.join(" "))
}

/// Cost, latency and memory: a row for each gateway and era.
fn speed(entrants: &[Entrant], contest: &Contest, link: Link) -> String {
    let mut text = format!(
        "| gateway | era | CPU per call, µs | calls/s | p50, µs | p99, µs | p50 at {rate}/s, µs | p99 at {rate}/s, µs | idle, \
         MiB | after load, MiB | KiB per idle session |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        rate = contest.plan.rate
    );
    for era in &contest.plan.eras {
        for entrant in entrants.iter().filter(|entrant| entrant.peer.link == link) {
            let system = entrant.peer.title();
            let range = |what: &str, value: &str| {
                // Without a gateway there is no process to measure.
                let is_nothing =
                    entrant.peer.source == Source::Direct && OF_PROCESS.contains(&value);
                ranged(
                    contest
                        .results
                        .range(&scenario(what, *era), &system, value)
                        .filter(|_| !is_nothing),
                )
            };
            let closed = ["cpu_us_per_call", "calls_per_s", "p50_us", "p99_us"]
                .map(|value| range("closed loop", value));
            let fixed = ["p50_us", "p99_us"].map(|value| range("fixed rate", value));
            let memory = [
                range("idle", "rss_mib"),
                range("closed loop", "rss_mib"),
                range("sessions", "kib_per_session"),
            ];
            let cells = closed
                .into_iter()
                .chain(fixed)
                .chain(memory)
                .collect::<Vec<_>>()
                .join(" | ");
            let _ = writeln!(text, "| {system} | {} | {cells} |", era.as_str());
        }
    }
    text
}

/// The median, with the smallest and the largest value if they differ.
fn ranged(range: Option<[f64; 3]>) -> String {
    let Some(range) = range else {
        return "–".to_owned();
    };
    let [least, median, greatest] = range.map(|value| format_value(Some(value)));
    if least == greatest {
        median
    } else {
        format!("{median} ({least}–{greatest})")
    }
}

/// A row for each case and a column for each gateway.
fn arrives(examined: &[&Examined]) -> String {
    let titles: Vec<&str> = examined.iter().map(|one| one.system.as_str()).collect();
    let mut text = format!(
        "| | {} |\n|---|{}\n",
        titles.join(" | "),
        "---|".repeat(titles.len())
    );
    let cases = examined
        .first()
        .map(|one| one.findings.as_slice())
        .unwrap_or_default();
    for Finding { case, .. } in cases {
        let verdicts = examined
            .iter()
            .map(|one| one.findings.iter().find(|finding| finding.case == *case));
        let words: Vec<_> = verdicts
            .map(|finding| finding.map_or("–", Finding::word))
            .collect();
        let _ = writeln!(text, "| {case} | {} |", words.join(" | "));
    }
    let preserved = examined.iter().map(|one| {
        let preserved = one
            .findings
            .iter()
            .filter(|finding| finding.outcome == "kept")
            .count();
        let judged = one
            .findings
            .iter()
            .filter(|finding| finding.outcome != "not tried");
        format!("{preserved} of {}", judged.count())
    });
    let _ = writeln!(
        text,
        "| **kept** | {} |",
        preserved.collect::<Vec<_>>().join(" | ")
    );
    text
}

impl Finding {
    fn word(&self) -> &str {
        match self.outcome.as_str() {
            "kept" => "✓",
            "not tried" => "–",
            outcome => outcome,
        }
    }
}

/// The received texts that were changed or refused.
fn seen(examined: &[&Examined]) -> String {
    let mut text = String::new();
    for one in examined {
        let lines: Vec<_> = one
            .findings
            .iter()
            .filter_map(
                |Finding {
                     case,
                     outcome,
                     seen,
                 }| {
                    Some(format!("- {case}: {outcome}: {}\n", code(seen.as_ref()?)))
                },
            )
            .collect();
        if !lines.is_empty() {
            let _ = write!(text, "\nSeen through {}:\n\n{}", one.system, lines.concat());
        }
    }
    text
}

/// Foreign text as code on one line.
fn code(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect();
    let longest = line
        .split(|character| character != '`')
        .map(str::len)
        .max()
        .unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let space = if longest > 0 { " " } else { "" };
    format!(
        "{fence}{space}{}{space}{fence}",
        line.trim().replace('|', "\\|")
    )
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_shown_where_there_is_one() {
        assert_eq!(ranged(None), "–");
        assert_eq!(ranged(Some([2.0, 2.0, 2.0])), "2.00");
        assert_eq!(ranged(Some([1.0, 2.0, 300.0])), "2.00 (1.00–300)");
    }

    #[test]
    fn text_of_others_stays_code_in_one_cell() {
        assert_eq!(code("a\nb|c"), r"`a b\|c`");
        assert_eq!(code("a `b`"), "`` a `b` ``");
    }

    #[test]
    fn table_has_a_row_for_each_case_and_counts_what_is_preserved() {
        let finding = |case: &str, outcome: &str, seen: Option<&str>| Finding {
            case: case.to_owned(),
            outcome: outcome.to_owned(),
            seen: seen.map(str::to_owned),
        };
        let findings = vec![
            finding("a", "kept", None),
            finding("b", "changed", Some("1")),
            finding("c", "lost", None),
            finding("d", "not tried", None),
        ];
        let one = Examined {
            system: "x".to_owned(),
            era: Era::Legacy,
            findings,
        };
        let table = arrives(&[&one]);
        assert!(
            table.contains("| b | changed |\n| c | lost |\n| d | – |\n| **kept** | 1 of 3 |"),
            "{table}"
        );
        assert_eq!(seen(&[&one]), "\nSeen through x:\n\n- b: changed: `1`\n");
    }
}
