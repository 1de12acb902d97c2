//! Hides the secrets of a server's configuration in texts about it.

use fanlight_config::Server;
use serde_json::Value;

use crate::configured_values::values_of;

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
