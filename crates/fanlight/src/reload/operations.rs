//! The operators' view of the configuration in force, and the changes that they can make.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fanlight_admin::{OperationError, Operations, RateLimit, RateUse, Reloaded};
use fanlight_cli::configured_values::configured_values;
use fanlight_cli::flagged::{self, Flagged, find_flagged};
use fanlight_cli::known_lists::KnownLists;
use fanlight_cli::unmatched;
use fanlight_frontend::RateState;
use fanlight_protocol::{DEFAULT_NESTING, Json};
use serde_json::Value;
use tracing::warn;

use super::{Control, NoServer, Trigger};

#[async_trait]
impl Operations for Control {
    fn config(&self) -> Json {
        let state = self.state();
        // Use the current lists, since most were read after the configuration.
        let unmatched =
            unmatched::warnings(&state.effective, &KnownLists::from_gateway(&self.gateway));
        parsed(state.to_json(&unmatched))
    }

    fn endpoint(&self) -> Arc<str> {
        self.state().endpoint()
    }

    fn connect(&self) -> Json {
        parsed(self.state().target().to_json().to_string())
    }

    fn instance(&self) -> Option<&str> {
        self.instance.as_deref()
    }

    fn pins(&self) -> Json {
        self.pins.load().as_ref().map_or_else(Json::null, |pins| {
            parsed(pins.to_json(&flagged::gateway_definitions(&self.gateway)))
        })
    }

    fn flagged_definitions(&self) -> Json {
        parsed(
            find_flagged(&flagged::gateway_definitions(&self.gateway))
                .iter()
                .map(Flagged::to_json)
                .collect::<Value>()
                .to_string(),
        )
    }

    async fn approve_pin(&self, id: String) -> Result<String, OperationError> {
        if self.has_common_pins {
            return self
                .approve(id)
                .await
                .unwrap_or(Err(OperationError::Ending));
        }
        let pins = self
            .pins
            .load_full()
            .ok_or(OperationError::NoSuchDefinition)?;
        let (about, write) = pins
            .approval(&id, &flagged::gateway_definitions(&self.gateway))
            .ok_or(OperationError::NoSuchDefinition)?;
        let written = tokio::task::spawn_blocking(write).await;
        if let Err(error) = written.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            warn!(%error, "cannot write an approved definition to the file of `pins`");
            return Err(OperationError::NotWritten);
        }
        self.reload(Trigger::Api)
            .await
            .ok_or(OperationError::Ending)?;
        Ok(about)
    }

    fn configured_values(&self) -> Vec<String> {
        configured_values(&self.state().effective)
    }

    fn limits(&self, nearest: usize) -> Vec<RateLimit> {
        let shown = |state: RateState| {
            let RateState {
                name: rule,
                most,
                passed,
                waited,
                refused,
                keys,
                nearest,
            } = state;
            let used = |fanlight_frontend::RateUse {
                            client,
                            endpoint,
                            server,
                            tool,
                            used,
                        }: fanlight_frontend::RateUse| {
                RateUse {
                    client,
                    endpoint,
                    server,
                    tool,
                    used,
                }
            };
            RateLimit {
                rule,
                most,
                passed,
                waited,
                refused,
                keys,
                nearest: nearest.into_iter().map(used).collect(),
            }
        };
        self.protection
            .limits(nearest)
            .into_iter()
            .map(shown)
            .collect()
    }

    async fn reload(&self) -> Result<Reloaded, OperationError> {
        let outcome = self
            .reload(Trigger::Api)
            .await
            .ok_or(OperationError::Ending)?;
        Ok(Reloaded {
            is_usable: !outcome.is_failed(),
            report: parsed(format!("{:#}", outcome.to_json())),
        })
    }

    async fn switch(&self, server: String, enabled: bool) -> Result<(), OperationError> {
        done(self.switch(server, enabled).await)
    }

    async fn restart(&self, server: String) -> Result<(), OperationError> {
        done(self.restart(server).await)
    }
}

fn done(answer: Option<Result<(), NoServer>>) -> Result<(), OperationError> {
    answer
        .ok_or(OperationError::Ending)?
        .map_err(|NoServer| OperationError::NoSuchServer)
}

fn parsed(text: String) -> Json {
    Json::parse(Bytes::from(text), DEFAULT_NESTING).unwrap_or_else(|_| Json::null())
}
