//! The outcome of a reload, for the log, the API and the command line.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use fanlight_cli::connect::Target;
use fanlight_cli::failure::Unusable;
use fanlight_cli::shown_names::ChangedNames;
use fanlight_config::{Config, ConfigErrors, ConfigFile};
use fanlight_protocol::epoch;
use serde_json::{Map, Value, json};
use tracing::{info, warn};

use super::listeners::Moved;
use crate::servers::Difference;

/// The reason for a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// SIGHUP.
    Signal,
    /// A file has changed.
    Files,
    /// A request to the API.
    Api,
    /// A secret has to be read again.
    Secrets,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signal => "SIGHUP",
            Self::Files => "changed files",
            Self::Api => "API",
            Self::Secrets => "secrets",
        })
    }
}

/// The outcome of a reload.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    trigger: Trigger,
    at: SystemTime,
    result: Result,
}

/// The effects of a new configuration.
#[derive(Clone, Debug)]
pub(super) struct Applied {
    pub(super) servers: Difference,
    /// Listeners that changed their address.
    pub(super) moved: Vec<Moved>,
    /// Changed options that take effect after a restart.
    pub(super) needs_restart: Vec<String>,
    /// Names that clients see differently.
    pub(super) names: ChangedNames,
    /// Warnings about patterns that match nothing.
    pub(super) unmatched: Vec<String>,
}

#[derive(Clone, Debug)]
enum Result {
    Applied(Applied),
    Unchanged,
    Failed {
        /// The problems, laid out for a terminal.
        text: String,
        problems: Value,
    },
}

impl Outcome {
    fn new(trigger: Trigger, result: Result) -> Self {
        Self {
            trigger,
            at: SystemTime::now(),
            result,
        }
    }

    pub(super) fn applied(trigger: Trigger, applied: Applied) -> Self {
        Self::new(trigger, Result::Applied(applied))
    }

    pub(super) fn unchanged(trigger: Trigger) -> Self {
        Self::new(trigger, Result::Unchanged)
    }

    pub(super) fn failed(trigger: Trigger, unusable: &Unusable) -> Self {
        let (text, problems) = match unusable {
            Unusable::Errors(errors) => (errors.render(false), problems(errors)),
            Unusable::Other(message) => (message.clone(), json!([{ "message": message }])),
        };
        Self::new(trigger, Result::Failed { text, problems })
    }

    pub(crate) fn is_failed(&self) -> bool {
        matches!(self.result, Result::Failed { .. })
    }

    /// The problems, laid out for a terminal; empty if there are none.
    pub(super) fn text(&self) -> &str {
        match &self.result {
            Result::Failed { text, .. } => text.trim_end(),
            _ => "",
        }
    }

    pub(super) fn log(&self, generation: u64) {
        let trigger = self.trigger;
        let Result::Applied(Applied {
            servers,
            needs_restart,
            names,
            unmatched,
            ..
        }) = &self.result
        else {
            return info!(%trigger, generation, "configuration reloaded: unchanged");
        };
        let Difference {
            added,
            changed,
            removed,
            kept,
        } = servers;
        info!(%trigger, generation, ?added, ?changed, ?removed, kept = kept.len(), "configuration reloaded");
        if !needs_restart.is_empty() {
            warn!(options = ?needs_restart, "changed options take effect after a restart");
        }
        names.log();
        unmatched.iter().for_each(|line| warn!("{line}"));
    }

    /// The outcome for the API.
    pub(crate) fn to_json(&self) -> Value {
        let mut object = Map::new();
        let mut add = |key: &str, value: Value| object.insert(key.to_owned(), value);
        add("atMs", moment(self.at));
        add("trigger", json!(self.trigger.to_string()));
        match &self.result {
            Result::Applied(Applied {
                servers,
                moved,
                needs_restart,
                names,
                unmatched,
            }) => {
                let Difference {
                    added,
                    changed,
                    removed,
                    kept,
                } = servers;
                add("result", json!("applied"));
                add(
                    "servers",
                    json!({"added": added, "changed": changed, "removed": removed, "kept": kept}),
                );
                let address = |moved: &Moved| json!(moved.to.as_ref().map(ToString::to_string));
                let moved = moved
                    .iter()
                    .map(|moved| (moved.option.to_owned(), address(moved)));
                add("listeners", Value::Object(moved.collect()));
                add("needsRestart", json!(needs_restart));
                add("renamed", json!(names));
                add("warnings", json!(unmatched));
            }
            Result::Unchanged => drop(add("result", json!("unchanged"))),
            Result::Failed { text, problems } => {
                add("result", json!("failed"));
                add("problems", problems.clone());
                add("text", json!(text));
            }
        }
        Value::Object(object)
    }
}

fn problems(errors: &ConfigErrors) -> Value {
    let problem = |problem: &fanlight_config::Problem| {
        let position = problem.position();
        json!({
            "file": problem.file().display().to_string(),
            "line": position.map(|position| position.line),
            "column": position.map(|position| position.column),
            "message": problem.message(),
            "help": problem.help(),
            "source": problem.source_line(),
        })
    };
    errors.problems().iter().map(problem).collect()
}

/// The configuration in force and its history.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// A counter that grows with each configuration that differs from the previous one.
    pub(super) generation: u64,
    /// The time when it came into force.
    pub(super) since: SystemTime,
    /// The configuration with the operators' changes, without secrets.
    pub(super) config: Map<String, Value>,
    /// The same configuration as a value.
    pub(super) effective: Arc<Config>,
    pub(super) files: Vec<ConfigFile>,
    /// The latest reload.
    pub(super) last: Option<Outcome>,
    pub(super) switched: BTreeMap<String, bool>,
    /// The address that clients connect to.
    pub(super) endpoint: Arc<str>,
    /// How clients can connect.
    pub(super) target: Target,
}

impl State {
    pub(super) fn first(
        config: Map<String, Value>,
        effective: &Config,
        files: &[ConfigFile],
        since: SystemTime,
    ) -> Self {
        let (files, switched) = (files.to_vec(), BTreeMap::new());
        Self {
            generation: 1,
            since,
            config,
            effective: Arc::new(effective.clone()),
            files,
            last: None,
            switched,
            endpoint: Arc::default(),
            target: Target::default(),
        }
    }

    /// The address that clients connect to.
    pub(crate) fn endpoint(&self) -> Arc<str> {
        Arc::clone(&self.endpoint)
    }

    /// How clients can connect.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// The configuration as JSON, with the state of reloading in the member `reload`. `unmatched`
    /// has the warnings about its patterns.
    pub(crate) fn to_json(&self, unmatched: &[String]) -> String {
        let mut shown = self.config.clone();
        let switched = |to: bool| -> Vec<&String> {
            self.switched
                .iter()
                .filter(|(_, enabled)| **enabled == to)
                .map(|(name, _)| name)
                .collect()
        };
        shown.insert(
            "reload".to_owned(),
            json!({
                "generation": self.generation,
                "sinceMs": moment(self.since),
                "files": self.files.iter().map(|file| file.path.display().to_string()).collect::<Vec<_>>(),
                "last": self.last.as_ref().map(Outcome::to_json),
                "warnings": unmatched,
                "atRunTime": {"enabled": switched(true), "disabled": switched(false)},
            }),
        );
        format!("{:#}", Value::Object(shown))
    }
}

fn moment(at: SystemTime) -> Value {
    json!(u64::try_from(epoch::since(at).as_millis()).unwrap_or(u64::MAX))
}
