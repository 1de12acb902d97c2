//! `fanlight approvals`: the calls that wait for approval, and the answers to them.

use bytes::Bytes;
use fanlight_protocol::Json;
use fanlight_protocol::visible::{escaped, plain};
use serde_json::Value;

use super::Admin;
use super::admin::{elements, text};
use super::style::{Style, duration};
use crate::cli::{AnswerArgs, ApprovalsArgs, ApprovalsCommand, CommonArgs};
use crate::failure::Result;
use crate::out::{self, indented, say};

/// The limit of nesting up to which arguments are indented.
const NESTING: usize = 1024;

/// Lists the waiting calls, or answers one.
pub async fn approvals(args: &ApprovalsArgs, common: &CommonArgs) -> Result {
    match &args.command {
        None => list(args, common).await,
        Some(ApprovalsCommand::Approve(answer)) => decide(answer, common, "approve").await,
        Some(ApprovalsCommand::Refuse(answer)) => decide(answer, common, "refuse").await,
    }
}

async fn list(args: &ApprovalsArgs, common: &CommonArgs) -> Result {
    let admin = Admin::find(&args.admin, common).await?;
    let text = admin.get(&["approvals"], &[]).await?;
    if out::is_json(args.json, &text) {
        return Ok(());
    }
    let answer = admin.json(&text)?;
    let all: Vec<&Value> = elements(&answer, "approvals").collect();
    if all.is_empty() {
        say!("no call waits for approval");
    }
    let style = Style::for_stdout();
    let shown: Vec<String> = all.into_iter().map(|one| describe(one, style)).collect();
    if !shown.is_empty() {
        say!("{}", shown.join("\n\n"));
    }
    Ok(())
}

/// A call and its question in a few lines.
fn describe(one: &Value, style: Style) -> String {
    let text = |key: &str| plain(text(one, key), 200);
    let is = |key: &str| one[key] == true;
    let status = match one["status"].as_str() {
        Some("open") if is("waiting") => style.warn("open, the call waits"),
        Some("open") => style.warn("open, until the client sends the call again"),
        Some("approved") => format!(
            "{} by {}, not sent again yet",
            style.good("approved"),
            text("decidedBy")
        ),
        _ => format!("{} by {}", style.bad("refused"), text("decidedBy")),
    };
    let left = one["leftMs"].as_f64().unwrap_or_default().max(0.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is positive and below some minutes"
    )]
    let left = duration((left * 1e6) as u64);
    let another = if is("anotherPerson") {
        "; someone other than the caller has to approve"
    } else {
        ""
    };
    let mut lines = vec![
        format!(
            "{}  {}/{}  {status}",
            style.bold(&text("id")),
            text("server"),
            text("tool")
        ),
        format!("  {}", text("question")),
        format!(
            "  for {} at {}; within {left}{another}",
            text("principal"),
            text("endpoint")
        ),
    ];
    let more = one["more"].as_str();
    let arguments = one["arguments"].as_str();
    let shown = [
        Some(arguments.unwrap_or("no arguments")),
        more.map(|_| "other parameters:"),
        more,
    ];
    for text in shown.into_iter().flatten() {
        let json = Json::parse(Bytes::from(text.to_owned()), NESTING);
        let text = json.map_or_else(|_| text.to_owned(), |json| indented(&json));
        lines.extend(text.lines().map(|line| format!("  {}", escaped(line))));
    }
    lines.join("\n")
}

async fn decide(args: &AnswerArgs, common: &CommonArgs, word: &str) -> Result {
    let admin = Admin::find(&args.admin, common).await?;
    let body = admin.post(&["approvals", &args.id, word]).await?;
    if out::is_json(args.json, &body) {
        return Ok(());
    }
    let answer = admin.json(&body)?;
    let call = plain(text(&answer, "call"), 200);
    let waits = answer["waiting"] == true;
    match (word, waits) {
        ("approve", true) => say!("approved: {call} runs now"),
        ("approve", false) => say!("approved: {call} runs when its client sends it again"),
        _ => say!("refused: {call}"),
    }
    Ok(())
}
