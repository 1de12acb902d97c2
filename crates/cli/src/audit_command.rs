//! `fanlight audit`: queries and verifies the audit log.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use fanlight_config::settings::read_bounded;
use fanlight_config::{Config, parse_duration, parse_moment};
use fanlight_protocol::Json;
use fanlight_protocol::visible::plain;
use fanlight_record::ledger::{
    CheckpointKey, Filter, LedgerFiles, PublicKey, Use, UseKey, Verified, read, usage, verify,
};
use itertools::Itertools as _;
use serde_json::json;

use crate::cli::{AuditCommand, AuditFilterArgs, AuditQueryArgs, CommonArgs};
use crate::observe::columns::render_rows;
use crate::{Failure, Result, configuration, counted, out, record, say};

/// The size limit of a file with checkpoints, in bytes.
const CHECKPOINTS: usize = 16 << 20;

/// Runs a subcommand of `fanlight audit` on the files of the audit log. The gateway need not run.
pub fn command(command: &AuditCommand, common: &CommonArgs) -> Result {
    let config = configuration::load(common, false)?.config;
    let records = records(&config)?;
    match command {
        AuditCommand::Query(args) => query(args, &records),
        AuditCommand::Usage(args) => used(args, &records),
        AuditCommand::Verify {
            checkpoint,
            key,
            json,
        } => verified(&records, checkpoint, key.as_deref(), *json),
        AuditCommand::Key => {
            for record in &records {
                say!("{}", key_beside(record)?.to_text());
            }
            Ok(())
        }
    }
}

pub(crate) fn records(config: &Config) -> Result<Vec<LedgerFiles>> {
    let records = record::files(config)
        .into_iter()
        .filter(|record| !record.list().is_empty())
        .collect_vec();
    if records.is_empty() {
        let help = "this configuration has no audit log yet; `audit.file` or `stateDir` sets where a gateway writes it";
        return Err(Failure::other(help));
    }
    Ok(records)
}

fn filter(args: &AuditFilterArgs) -> Result<Filter> {
    Ok(Filter {
        principal: args.principal.clone(),
        server: args.server.clone(),
        item: args.tool.clone(),
        since: args.since.as_deref().map(moment).transpose()?,
        until: args.until.as_deref().map(moment).transpose()?,
        ..Filter::default()
    })
}

/// The time that a text names: a duration ago, or a day or time in UTC.
fn moment(text: &str) -> Result<SystemTime> {
    let ago = parse_duration(text).and_then(|ago: Duration| SystemTime::now().checked_sub(ago));
    ago.or_else(|| parse_moment(text, SystemTime::now()))
        .ok_or_else(|| {
            usage!("{text:?} is not a time: write 24h, 7d, 2027-01-31 or 2027-01-31T08:00:00Z")
        })
}

fn query(args: &AuditQueryArgs, records: &[LedgerFiles]) -> Result {
    let (action, outcome, task) = (args.action.clone(), args.outcome.clone(), args.task.clone());
    let filter = Filter {
        action,
        outcome,
        task,
        ..filter(&args.filter)?
    };
    let lines = read(records, &filter, usize::from(args.limit))?;
    if args.filter.json {
        lines.iter().for_each(|line| out::json(line.as_text()));
        return Ok(());
    }
    if lines.is_empty() {
        say!("no entry of the audit log matches");
        return Ok(());
    }
    let rows = lines.iter().map(row).collect_vec();
    let headings = ["TIME", "WHO", "WHAT", "ABOUT", "OUTCOME", "TOOK"];
    say!("{}", render_rows(headings, &rows));
    Ok(())
}

fn row(line: &Json) -> [String; 6] {
    let text = |member: &str| {
        line.peek(member)
            .and_then(|value| value.as_str())
            .unwrap_or_default()
            .into_owned()
    };
    let about = match (text("server"), text("item")) {
        (server, item) if !item.is_empty() => format!("{server}/{item}"),
        (server, _) if !text("shown").is_empty() => {
            format!("{server} {}", text("shown")).trim().to_owned()
        }
        (server, _) => server,
    };
    let what = if text("action").is_empty() {
        text("event")
    } else {
        text("action")
    };
    let outcome = match text("reason") {
        reason if reason.is_empty() => text("outcome"),
        reason => format!("{} ({reason})", text("outcome")),
    };
    let took = line
        .get("durationUs")
        .and_then(|duration| duration.as_i64());
    let took = took.map_or_else(String::new, |micros| format!("{} ms", micros / 1000));
    let who = if text("principal").is_empty() {
        text("who")
    } else {
        text("principal")
    };
    let time = text("time").get(..19).unwrap_or_default().replace('T', " ");
    [
        time,
        plain(&who, 40),
        plain(&what, 30),
        plain(&about, 60),
        plain(&outcome, 60),
        took,
    ]
}

fn used(args: &AuditFilterArgs, records: &[LedgerFiles]) -> Result {
    let used = usage(records, &filter(args)?)?;
    if args.json {
        let rows = used
            .iter()
            .map(|(key, row)| as_json(key, row))
            .collect_vec();
        out::pretty(&json!({ "usage": rows }));
        return Ok(());
    }
    let row = |(key, row): (&UseKey, &Use)| {
        [
            key.day.clone(),
            plain(&key.principal, 40),
            plain(&key.client, 30),
            plain(&key.what, 60),
            row.calls.to_string(),
            row.errors.to_string(),
            row.refused.to_string(),
            row.response_bytes.to_string(),
            row.estimated_tokens().to_string(),
        ]
    };
    let headings = [
        "DAY", "WHO", "CLIENT", "WHAT", "CALLS", "ERRORS", "REFUSED", "BYTES", "~TOKENS",
    ];
    let rows = used.iter().map(row).collect_vec();
    say!("{}", render_rows(headings, &rows));
    Ok(())
}

fn as_json(key: &UseKey, row: &Use) -> serde_json::Value {
    json!({
        "day": key.day, "principal": key.principal, "client": key.client, "what": key.what, "calls": row.calls, "errors": row.errors,
        "refused": row.refused, "requestBytes": row.request_bytes, "responseBytes": row.response_bytes,
        "estimatedTokens": row.estimated_tokens(),
    })
}

fn verified(records: &[LedgerFiles], more: &[PathBuf], key: Option<&str>, json: bool) -> Result {
    let given = key
        .map(PublicKey::read)
        .transpose()
        .map_err(Failure::usage)?;
    let more = more
        .iter()
        .map(|path| configuration::read_text(path, CHECKPOINTS))
        .collect::<Result<Vec<_>, _>>()?;
    for record in records {
        let key = given.clone().map_or_else(|| key_beside(record), Ok)?;
        let file = record.current().display().to_string();
        let Verified {
            lines: (first, last),
            checkpoints,
            after,
        } = verify(record, &key, &more)
            .map_err(|wrong| failure!("the audit log was changed: {wrong}"))?;
        if json {
            let found = json!({ "file": file, "first": first, "last": last, "checkpoints": checkpoints, "after": after });
            out::json(&found.to_string());
        } else {
            let agreeing = counted(checkpoints, "checkpoint");
            say!(
                "{file}: lines {first} to {last} are unchanged; {agreeing} agree, {after} lines after the last"
            );
        }
    }
    Ok(())
}

fn key_beside(record: &LedgerFiles) -> Result<PublicKey> {
    let path = record.key();
    let bytes = read_bounded(&path, CHECKPOINTS)
        .map_err(|error| failure!("{}: cannot be read: {error}", path.display()))?;
    let key = CheckpointKey::from_bytes(&bytes);
    let key = key.ok_or_else(|| failure!("{} has no key", path.display()))?;
    Ok(key.public().clone())
}
