//! `fanlight policy`: prints the schema and the policies in force, explains decisions, and runs
//! test cases.

mod cases;
mod question;

use std::path::Path;

use fanlight_canonical::PolicyKind;
use fanlight_config::{Config, Loaded, MAX_FILE_SIZE, WrittenRight};
use fanlight_gateway::catalogue::ListKind;
use fanlight_policy::{Listed, Policies, WrittenRule};
use fanlight_protocol::{Json, MAX_NESTING};
use serde_json::json;

use crate::cli::{AdminArgs, CommonArgs, ExplainArgs, PolicyCommand};
use crate::observe::Admin;
use crate::{Failure, Result, configuration, counted, out, policy, say};
use fanlight_protocol::visible::plain;
use question::{Answer, Question};

/// Runs a subcommand of `fanlight policy`. It starts no server: a running gateway supplies the
/// tools' annotations.
pub async fn command(command: &PolicyCommand, common: &CommonArgs) -> Result {
    if let PolicyCommand::Schema { admin } = command {
        let listed = listed_items(admin, common).await?;
        say!("{}", fanlight_policy::schema(&listed).trim_end());
        return Ok(());
    }
    let loaded = configuration::load(common, false)?;
    let config = &loaded.config;
    let policies = policy::load(config, None).map_err(Failure::usage)?;
    if let PolicyCommand::Show = command
        && (policies.is_some() || !loaded.rights.is_empty())
    {
        show(&loaded, policies.as_deref());
        return Ok(());
    }
    let policies = policies.ok_or_else(|| {
        usage!("this configuration has no policies: write `policy.files`, or `allow` at a server or endpoint")
    })?;
    match command {
        PolicyCommand::Schema { .. } | PolicyCommand::Show => Ok(()),
        PolicyCommand::Explain(args) => explain(args, common, config, &policies).await,
        PolicyCommand::Test { cases } => test(cases, config, &policies),
    }
}

/// Prints all rules, each with the line that it comes from.
fn show(loaded: &Loaded, policies: Option<&Policies>) {
    let (mut made, own): (Vec<_>, Vec<_>) = policies
        .into_iter()
        .flat_map(Policies::written_rules)
        .partition(|rule| loaded.rights.iter().any(|it| it.option == rule.file));
    for WrittenRight {
        option,
        place,
        value,
    } in &loaded.rights
    {
        say!(
            "// {}:{} {option}: {}",
            place.0.display(),
            place.1,
            plain(value, 500)
        );
        for rule in made.extract_if(.., |rule| rule.file == option) {
            say!("{}", rule.text.trim_end());
        }
        say!("");
    }
    for WrittenRule {
        file,
        line,
        id,
        text,
    } in own
    {
        let place = format!("{file}:{line}");
        let name = match id == place {
            true => place,
            false => format!("{place} {id}"),
        };
        say!("// {name}\n{}\n", text.trim_end());
    }
}

/// The items that a running gateway lists.
async fn listed_items(admin: &AdminArgs, common: &CommonArgs) -> Result<Vec<Listed>> {
    let Some(admin) = Admin::for_command(admin, common).await? else {
        return Ok(Vec::new());
    };
    let broken =
        |error: &dyn std::fmt::Display| failure!("the gateway's lists cannot be read: {error}");
    let answer = admin.get(&["catalogue"], &[]).await?;
    let answer = Json::parse(answer, MAX_NESTING).map_err(|error| broken(&error))?;
    let mut found = Vec::new();
    for list in ListKind::ALL {
        let kind = list.policy_kind();
        let entries = answer
            .get(list.member())
            .and_then(|list| list.get("entries"))
            .unwrap_or_default();
        for entry in entries.items() {
            let (server, name) = (entry.text_at("backend"), entry.text_at("original"));
            let (Some(server), Some(name), Some(definition)) = (server, name, entry.get("entry"))
            else {
                continue;
            };
            found.push(Listed {
                kind,
                name: format!("{server}/{name}"),
                definition,
            });
        }
    }
    Ok(found)
}

async fn explain(
    args: &ExplainArgs,
    common: &CommonArgs,
    config: &Config,
    policies: &Policies,
) -> Result {
    let claims = args.claims.iter().map(|claim| {
        let (name, values) = claim
            .split_once('=')
            .ok_or(format!("{claim:?} is not a claim: write NAME=VALUE"))?;
        Ok((
            name.to_owned(),
            values.split(',').map(str::to_owned).collect(),
        ))
    });
    let mut question = Question {
        principal: args.principal.clone(),
        groups: args.groups.clone(),
        scopes: args.scopes.clone(),
        claims: claims
            .collect::<Result<_, String>>()
            .map_err(Failure::usage)?,
        endpoint: args.endpoint.clone(),
        item: args.item(),
        arguments: args.arguments.clone(),
        annotations: args.annotations.clone(),
        definition: None,
    };
    let mut is_unknown = false;
    if let Some((kind @ PolicyKind::Tool, name)) = &question.item
        && question.annotations.is_none()
    {
        let found = listed_items(&args.admin, common)
            .await?
            .into_iter()
            .find(|item| item.kind == *kind && item.name == *name);
        is_unknown = found.is_none();
        // An unknown tool counts as one without annotations.
        question.definition = Some(found.map_or_else(Json::empty_object, |item| item.definition));
    }
    let answer = question.ask(config, policies).map_err(Failure::usage)?;
    if args.json {
        let Answer {
            outcome,
            policies,
            text,
            notes,
        } = &answer;
        out::pretty(
            &json!({ "outcome": outcome, "policies": policies, "text": text, "notes": notes, "toolKnown": !is_unknown }),
        );
        return Ok(());
    }
    let meaning = match answer.outcome {
        "allow" => "allow: the client may do this",
        "ask" => "ask: the call runs after an approval",
        "deny" => "deny: the client sees the item, but may not do this",
        _ => "hidden: for the client, the item does not exist",
    };
    say!("{meaning}");
    match answer.policies.as_slice() {
        [] => say!("  no policy permits it"),
        all => all.iter().for_each(|id| say!("  by {}", plain(id, 200))),
    }
    answer
        .text
        .iter()
        .for_each(|text| say!("  {}", plain(text, 500)));
    answer
        .notes
        .iter()
        .for_each(|note| say!("  note: {}", plain(note, 500)));
    if is_unknown {
        say!(
            "  note: no running gateway lists this tool, so it counts as one without annotations (set some with --annotations)"
        );
    }
    Ok(())
}

fn test(path: &Path, config: &Config, policies: &Policies) -> Result {
    let text = configuration::read_text(path, MAX_FILE_SIZE)?;
    let cases = cases::read(path, &text).map_err(Failure::usage)?;
    if cases.is_empty() {
        return Err(usage!("{}: there are no cases", path.display()));
    }
    let mut failed = 0;
    for case in &cases {
        let wrong = match case.question.ask(config, policies) {
            Ok(answer) if answer.outcome == case.expect => continue,
            Ok(answer) => {
                let by = if answer.policies.is_empty() {
                    "no policy".to_owned()
                } else {
                    answer.policies.join(", ")
                };
                format!("expected {}, found {} by {by}", case.expect, answer.outcome)
            }
            Err(error) => error,
        };
        failed += 1;
        say!(
            "{}:{}: {}: {}",
            path.display(),
            case.line,
            plain(&case.name, 100),
            plain(&wrong, 500)
        );
    }
    if failed > 0 {
        return Err(failure!(
            "{failed} of {} failed",
            counted(cases.len(), "case")
        ));
    }
    say!("{} passed", counted(cases.len(), "case"));
    Ok(())
}
