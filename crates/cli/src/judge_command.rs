//! `fanlight check URL` and `fanlight check -- COMMAND`: judge one server without a configuration
//! or a gateway.

use std::path::Path;
use std::time::{Duration, SystemTime};

use fanlight_config::{Secret, Transport, written_moment};
use fanlight_protocol::visible::plain;
use http::header::AUTHORIZATION;
use serde::Serialize;
use serde_json::Value;

use crate::cli::CheckArgs;
use crate::inspect::{SignIn, sign_in_at};
use crate::judge::{EraReport, Finding, Patience, Report, Severity, Step, judge, page};
use crate::login::Browser;
use crate::observe::style::Style;
use crate::{Result, complain, counted, interruptible, out, say};

/// The time limit for a start, which may include a download.
const START: Duration = Duration::from_secs(90);
/// The time limit for answers of a running server.
const ANSWER: Duration = Duration::from_secs(15);
/// The limit of problematic entries shown of a list; a report has all.
const ENTRIES: usize = 10;

/// The server that the command line names, if any.
pub fn target(args: &CheckArgs) -> Result<Option<Transport>> {
    let target = named_transport(args.url.as_ref(), &args.header, &args.command)?;
    if target.is_none() && args.report.is_some() {
        return Err(usage!(
            "--report is about one server: name its URL, or its command behind `--`, such as\n  \
             fanlight check --report report.html -- node server.js",
        ));
    }
    Ok(target)
}

/// The server with this URL, or else this command.
pub fn named_transport(
    url: Option<&String>,
    headers: &[String],
    command: &[String],
) -> Result<Option<Transport>> {
    let Some(url) = url else {
        return Ok(command
            .split_first()
            .map(|(command, args)| Transport::Stdio {
                command: command.clone(),
                args: args.to_vec(),
                env: Vec::new(),
                cwd: None,
            }));
    };
    let is_url = url::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    if !is_url {
        return Err(usage!(
            "{url:?} is neither a file nor an http or https URL; write a command behind `--`, \
             such as `-- {url}`"
        ));
    }
    // The text may be secret, so the message does not repeat it.
    let wrong = || usage!("write a header as in `--header 'Authorization: Bearer …'`");
    let headers = headers.iter().map(|header| {
        let (name, value) = header.split_once(':').ok_or_else(wrong)?;
        Ok((name.trim().to_ascii_lowercase(), Secret::new(value.trim())))
    });
    Ok(Some(Transport::Http {
        url: url.clone(),
        headers: headers.collect::<Result<_>>()?,
    }))
}

/// A report, and the requirements for signing in to the server, if needed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    sign_in: Option<Value>,
}

/// The target with the user's token for it, after a sign-in on a terminal if necessary. Without a
/// token, returns the requirements for signing in.
async fn signed_in(target: &Transport, args: &CheckArgs) -> (Transport, Option<SignIn>) {
    let Transport::Http { url, headers } = target else {
        return (target.clone(), None);
    };
    if headers
        .iter()
        .any(|(name, _)| name == AUTHORIZATION.as_str())
    {
        return (target.clone(), None);
    }
    match sign_in_at(url, ANSWER, Browser::from_terminal(args.no_browser)).await {
        Ok((Some(token), _)) => {
            let (url, mut headers) = (url.clone(), headers.clone());
            let shown = Secret::new(format!("Bearer {token}"));
            headers.push((AUTHORIZATION.to_string(), shown));
            (Transport::Http { url, headers }, None)
        }
        Ok((None, sign_in)) => (target.clone(), sign_in),
        Err(failure) => {
            complain(&format!("{failure}; going on without signing in\n"));
            (target.clone(), None)
        }
    }
}

/// Prints the findings about a server. Fails if it cannot be used, or breaks the specification.
pub async fn judge_one(target: &Transport, args: &CheckArgs) -> Result {
    let at = written_moment(SystemTime::now());
    let patience = Patience {
        start: START,
        answer: ANSWER,
    };
    let steps = |step: Step| match step {
        Step::Opening(era) => complain(&format!(
            "opening the server as a client of the {era} era …\n"
        )),
        Step::Reading(era) => complain(&format!("reading its lists in the {era} era …\n")),
    };
    let (report, sign_in) = interruptible(async {
        let (target, sign_in) = Box::pin(signed_in(target, args)).await;
        Ok((judge(&target, patience, at, steps).await, sign_in))
    })
    .await?;
    if let Some(file) = &args.report {
        write(file, &page(&report))?;
    }
    if args.json {
        let shown = Shown {
            report: &report,
            sign_in: sign_in.as_ref().map(SignIn::to_json),
        };
        let text = serde_json::to_string_pretty(&shown)?;
        out::json(&text);
    } else {
        print(&report);
        sign_in
            .iter()
            .for_each(|sign_in| say!("\n{}", sign_in.line()));
    }
    if let Some(file) = &args.report {
        complain(&format!("report written to {}\n", file.display()));
    }
    match (report.is_good, report.is_served()) {
        (true, _) => Ok(()),
        (false, false) => Err(failure!("the server cannot be used")),
        (false, true) => Err(failure!(
            "{} found",
            counted(report.count(Severity::Error), "error")
        )),
    }
}

fn write(file: &Path, text: &str) -> Result {
    std::fs::write(file, text).map_err(|error| failure!("cannot write {}: {error}", file.display()))
}

fn print(report: &Report) {
    let style = Style::for_stdout();
    say!(
        "{} ({})\n",
        style.bold(&plain(&report.target, 200)),
        report.transport
    );
    for era in &report.eras {
        print_era(era, style);
    }
    if report.findings.is_empty() {
        say!("{}", style.good("no findings"));
    }
    report
        .findings
        .iter()
        .for_each(|finding| print_finding(finding, style));
}

fn print_era(era: &EraReport, style: Style) {
    if !era.is_served {
        say!("{} {}", style.bold(&era.era), style.dim("not served"));
        era.reason
            .iter()
            .flat_map(|reason| reason.lines())
            .for_each(|line| say!("  {}", plain(line, 300)));
        say!("");
        return;
    }
    let server = era
        .server
        .as_ref()
        .map(|server| format!("{} {}", server.name, server.version))
        .unwrap_or_default();
    let revision = era.revision.as_deref().unwrap_or_default();
    let transport = era
        .transport
        .map(|transport| format!(" over {transport}"))
        .unwrap_or_default();
    say!(
        "{} {}{transport} {}",
        style.bold(&era.era),
        style.good(&plain(revision, 20)),
        plain(&server, 100)
    );
    if !era.capabilities.is_empty() {
        say!(
            "  capabilities: {}",
            plain(&era.capabilities.join(", "), 300)
        );
    }
    for list in &era.lists {
        say!(
            "  {}: {}, {}, about {}",
            list.kind,
            list.entries.len(),
            counted(list.bytes, "byte"),
            counted(list.tokens, "token")
        );
        let with_problems = list
            .entries
            .iter()
            .filter(|entry| !entry.problems.is_empty());
        for entry in with_problems.take(ENTRIES) {
            say!(
                "    {}: {}",
                plain(&entry.key, 80),
                plain(&entry.problems.join("; "), 200)
            );
        }
    }
    let times: Vec<String> = era
        .timings
        .iter()
        .map(|timing| format!("{} {:.1} ms", timing.what.replace('`', ""), timing.millis))
        .collect();
    say!("  times: {}", times.join(", "));
    if let Some(pings) = &era.pings {
        say!(
            "  {}: p50 {:.1} ms, p95 {:.1} ms, at most {:.1} ms",
            pings.method,
            pings.p50,
            pings.p95,
            pings.max
        );
    }
    say!("");
}

fn print_finding(finding: &Finding, style: Style) {
    let word = match finding.severity {
        Severity::Error => style.bad("error"),
        Severity::Warning => style.warn("warning"),
        Severity::Note => style.dim("note"),
    };
    say!("{word}: {}", finding.what);
    finding
        .examples
        .iter()
        .for_each(|example| say!("  {}", plain(example, 200)));
    let more = finding.count.saturating_sub(finding.examples.len());
    if more > 0 && !finding.examples.is_empty() {
        say!("  and {more} more");
    }
}
