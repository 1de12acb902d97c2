//! Collects findings about a server.

use std::collections::BTreeMap;

use fanlight_config::Server;
use fanlight_protocol::Era;
use serde_json::Value;

use super::report::{Finding, Severity};
use crate::configured_values::values_of;

/// The most examples that are kept for one finding.
const EXAMPLES: usize = 3;

/// Findings by rule. Repeated findings count as one.
#[derive(Debug)]
pub(crate) struct Observed {
    era: Era,
    mask: Mask,
    /// Whether the server may send requests, because it knows the client's capabilities. In the
    /// modern era it never may.
    pub(crate) may_ask: bool,
    found: BTreeMap<&'static str, Finding>,
}

impl Observed {
    /// No findings yet, for a target with these secrets.
    pub(crate) fn new(era: Era, mask: &Mask) -> Self {
        Self {
            era,
            mask: mask.clone(),
            may_ask: false,
            found: BTreeMap::new(),
        }
    }

    /// Adds a finding, or an example of a known one. `what` is a sentence about the server,
    /// `example` tells where.
    pub(crate) fn add(
        &mut self,
        severity: Severity,
        rule: &'static str,
        what: &str,
        example: impl Into<String>,
    ) {
        let (era, example) = (self.era, shorten(&self.mask.hide(&example.into())));
        let finding = self.found.entry(rule).or_insert_with(|| Finding {
            severity,
            rule: rule.to_owned(),
            what: what.to_owned(),
            eras: vec![era],
            examples: Vec::new(),
            count: 0,
        });
        finding.count += 1;
        if !example.is_empty()
            && finding.examples.len() < EXAMPLES
            && !finding.examples.contains(&example)
        {
            finding.examples.push(example);
        }
    }

    pub(crate) fn error(&mut self, rule: &'static str, what: &str, example: impl Into<String>) {
        self.add(Severity::Error, rule, what, example);
    }

    pub(crate) fn warn(&mut self, rule: &'static str, what: &str, example: impl Into<String>) {
        self.add(Severity::Warning, rule, what, example);
    }

    pub(crate) fn note(&mut self, rule: &'static str, what: &str, example: impl Into<String>) {
        self.add(Severity::Note, rule, what, example);
    }

    /// Adds the findings to `all`. Findings of the same rule in another era are joined.
    pub(crate) fn join(self, all: &mut Vec<Finding>) {
        for finding in self.found.into_values() {
            match all.iter_mut().find(|known| known.rule == finding.rule) {
                Some(known) => known.eras.extend(finding.eras),
                None => all.push(finding),
            }
        }
    }
}

/// A server's text, shortened to an example and with invisible characters escaped.
pub(crate) fn shorten(text: &str) -> String {
    const LONGEST: usize = 200;
    let mut short: String = text.trim().chars().take(LONGEST).collect();
    if text.trim().chars().count() > LONGEST {
        short.push('…');
    }
    fanlight_protocol::visible::escaped(&short).into_owned()
}

/// The replacement for hidden text.
const HIDDEN: &str = "•••";
/// The shortest text that is hidden. Shorter ones are no secrets, and would hide parts of other
/// words.
const SHORTEST: usize = 6;
/// Parts of a server's configuration that may be secret. The server may repeat them in its texts.
#[derive(Clone, Debug, Default)]
pub struct Mask(Vec<String>);

impl Mask {
    /// Collects the values of a server's configuration that may be secret.
    pub fn new(server: &Server) -> Self {
        let mut texts = values_of(server);
        texts.retain(|text| text.chars().count() >= SHORTEST);
        // The longest first, so that none hides a part of another.
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self(texts)
    }

    /// Replaces the secrets in a text.
    pub fn hide(&self, text: &str) -> String {
        self.0
            .iter()
            .fold(text.to_owned(), |text, secret| text.replace(secret, HIDDEN))
    }

    /// Replaces the secrets in every text of a message, including names of members.
    pub(crate) fn hide_in(&self, value: &mut Value) {
        if self.0.is_empty() {
            return;
        }
        match value {
            Value::String(text) => *text = self.hide(text),
            Value::Array(elements) => elements
                .iter_mut()
                .for_each(|element| self.hide_in(element)),
            Value::Object(members) => {
                let all = std::mem::take(members);
                for (name, mut member) in all {
                    self.hide_in(&mut member);
                    members.insert(self.hide(&name), member);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use fanlight_config::{Secret, Transport};
    use serde_json::json;

    use super::*;

    fn mask(transport: Transport) -> Mask {
        Mask::new(&Server::new("server", transport))
    }

    #[test]
    fn secrets_of_a_command_are_hidden_wherever_they_stand() {
        let arguments = [
            "server.js",
            "--api-key=s3cret-one",
            "--token",
            "s3cret-two",
            "--port",
            "8080",
            "postgres://u:s3cret-3@h/d",
        ];
        let arguments = arguments.map(str::to_owned).to_vec();
        let mask = mask(Transport::Stdio {
            command: "node".into(),
            args: arguments,
            env: Vec::new(),
            cwd: None,
        });
        let mut said = json!({ "s3cret-one": ["x s3cret-two y", "at postgres://u:s3cret-3@h/d", "server.js 8080"] });
        mask.hide_in(&mut said);
        assert_eq!(
            said,
            json!({ "•••": ["x ••• y", "at •••", "server.js 8080"] })
        );
    }

    #[test]
    fn secrets_of_a_url_are_hidden() {
        let url = "https://user00:s3cret-pass@example.com/mcp/0123456789abcdef0123?key=s3cret-key"
            .to_owned();
        let headers = vec![(
            "authorization".to_owned(),
            Secret::new("Bearer s3cret-token"),
        )];
        let mask = mask(Transport::Http { url, headers });
        let shown = mask.hide("s3cret-token s3cret-key s3cret-pass /mcp/0123456789abcdef0123");
        assert!(
            !shown.contains("s3cret") && !shown.contains("0123456789") && shown.contains("/mcp/"),
            "{shown}"
        );
    }
}
