//! Parts of messages that arrive changed or not at all, as `fanlight witness` judges.

use std::path::Path;
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::Entrant;
use super::launch::context_forge_token;
use super::roster::{Link, Source};
use crate::era::Era;
use crate::error::{BenchError, Doing, Result, within};
use crate::system::Surroundings;

/// One part of a message, and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Finding {
    #[serde(rename = "name")]
    pub(super) case: String,
    pub(super) outcome: String,
    pub(super) seen: Option<String>,
}

#[derive(Deserialize)]
struct Witnessed {
    cases: Vec<Judged>,
    #[serde(rename = "notOffered")]
    not_offered: Vec<NotOffered>,
}

#[derive(Deserialize)]
struct Judged {
    #[serde(flatten)]
    finding: Finding,
    #[serde(flatten)]
    run: Run,
}

#[derive(Deserialize)]
struct NotOffered {
    #[serde(flatten)]
    run: Run,
    why: String,
}

#[derive(Deserialize, PartialEq)]
struct Run {
    era: String,
    transport: String,
    servers: usize,
}

/// The time-out of a witness with all its starts, in seconds.
const PATIENCE: u64 = 900;

/// All findings of a gateway in front of one server.
pub(super) async fn examine(fanlight: &Path, entrant: &Entrant, era: Era) -> Result<Vec<Finding>> {
    let folder = tempfile::tempdir().doing("making a temporary folder")?;
    let mut surroundings = Surroundings {
        folder: Some(folder.path().to_owned()),
        variables: Vec::new(),
    };
    let recipe = entrant.peer.recipe(era).unwrap_or_default();
    for (name, value) in &recipe.variables {
        let variable = ((*name).to_owned(), (*value).to_owned());
        surroundings.variables.push(variable);
    }
    let mut command = Command::new(fanlight);
    command.args(["witness", "--json", "--ready", "180s", "--"]);
    match (&entrant.peer.source, entrant.installed()?) {
        (Source::Fanlight, _) => {
            command
                .arg(fanlight)
                .args(["run", "{config}", "--admin", "off"]);
            command.args(["--listen", "127.0.0.1:{port}"]);
        }
        (Source::ContextForge, Some(installed)) => {
            let token = context_forge_token(installed, &surroundings).await?;
            let program = installed.programs.join("mcpgateway").display().to_string();
            let line = format!(
                r#"{program} --host 127.0.0.1 --port {{port}} & until curl -sf -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' -d '{{"name":"s0","url":"{{url}}","transport":"STREAMABLEHTTP"}}' http://127.0.0.1:{{port}}/v1/gateways; do sleep 1; done; wait"#
            );
            command
                .args(["/bin/sh", "-c", &line])
                .env("FANLIGHT_TOKEN", token);
        }
        (_, installed) => {
            let mut words = recipe.words.iter().map(|word| match word.as_str() {
                "{words}" => "{command}",
                "mcp.json" => "{config}",
                word => word,
            });
            let first = Path::new(words.next().unwrap_or_default());
            let program = installed.map_or(first.to_owned(), |it| it.programs.join(first));
            command.arg(program).args(words);
        }
    }
    command
        .envs(surroundings.variables)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = within("the witness", PATIENCE, async {
        command.output().await.doing("running the witness")
    })
    .await?;
    let witnessed = serde_json::from_slice(&output.stdout)
        .map_err(|_| BenchError::Other(String::from_utf8_lossy(&output.stderr).into_owned()))?;
    findings(witnessed, entrant.peer.link, era)
}

fn findings(witnessed: Witnessed, link: Link, era: Era) -> Result<Vec<Finding>> {
    let transport = match link {
        Link::Http => "http",
        Link::Stdio => "stdio",
    };
    let run = Run {
        era: era.as_str().to_owned(),
        transport: transport.to_owned(),
        servers: 1,
    };
    if let Some(not_offered) = witnessed.not_offered.into_iter().find(|it| it.run == run) {
        return Err(BenchError::Unsupported(not_offered.why));
    }
    let of_run = witnessed.cases.into_iter().filter(|it| it.run == run);
    Ok(of_run.map(|it| it.finding).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_of_one_run() {
        let text = r#"{"cases":[
            {"name":"a","era":"legacy","transport":"http","servers":1,"outcome":"kept"},
            {"name":"a","era":"legacy","transport":"http","servers":2,"outcome":"lost","seen":"x"},
            {"name":"a","era":"modern","transport":"http","servers":1,"outcome":"not offered"}],
            "notOffered":[{"era":"modern","transport":"http","servers":1,"why":"no"}],"remarks":[]}"#;
        let witnessed = || serde_json::from_str(text).unwrap();
        let found = findings(witnessed(), Link::Http, Era::Legacy).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].case.as_str(), found[0].outcome.as_str()),
            ("a", "kept")
        );
        let error = findings(witnessed(), Link::Http, Era::Modern).unwrap_err();
        assert_eq!(error.to_string(), "no");
        assert_eq!(findings(witnessed(), Link::Stdio, Era::Legacy).unwrap(), []);
    }
}
