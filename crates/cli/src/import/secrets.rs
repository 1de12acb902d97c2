//! Moves secrets from an entry into variables.

use fanlight_config::client_files::variable_name;
use fanlight_config::may_be_secret;
use fanlight_protocol::secret::begins_like_token;
use serde_json::{Map, Value};

/// The variables that replace secrets.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// Names and values, each name once.
    pub(super) variables: Vec<(String, String)>,
}

impl Moved {
    /// The entry of a server with its secrets replaced by references to variables.
    pub(super) fn entry(&mut self, server: &str, value: &Value) -> Value {
        let Value::Object(members) = value else {
            return value.clone();
        };
        let member = |(key, value): (&String, &Value)| {
            let changed = match (key.as_str(), value) {
                ("env", Value::Object(pairs)) => self.pairs(server, pairs, |name| name.to_owned()),
                ("headers", Value::Object(pairs)) => {
                    self.pairs(server, pairs, |name| format!("{server}_{name}"))
                }
                ("args", Value::Array(words)) => self.args(server, words),
                ("url", Value::String(url)) if is_secret_url(url) => {
                    self.reference(&format!("{server}_url"), server, "", url)
                }
                _ => value.clone(),
            };
            (key.clone(), changed)
        };
        members.iter().map(member).collect()
    }

    fn pairs(
        &mut self,
        server: &str,
        pairs: &Map<String, Value>,
        name: impl Fn(&str) -> String,
    ) -> Value {
        let pair = |(key, value): (&String, &Value)| {
            let changed = match value {
                Value::String(text) if is_literal(text) && may_be_secret(key, text) => {
                    // The scheme of `Authorization` is not secret and stays.
                    let (scheme, secret) = match text.split_once(' ') {
                        Some((scheme, secret))
                            if ["bearer", "basic", "token"]
                                .contains(&scheme.to_lowercase().as_str()) =>
                        {
                            (format!("{scheme} "), secret)
                        }
                        _ => (String::new(), text.as_str()),
                    };
                    self.reference(&name(key), server, &scheme, secret)
                }
                _ => value.clone(),
            };
            (key.clone(), changed)
        };
        pairs.iter().map(pair).collect()
    }

    /// Replaces secrets in arguments: the word after an option such as `--api-key`, the text after
    /// its `=`, and words that look like tokens.
    fn args(&mut self, server: &str, words: &[Value]) -> Value {
        let mut option = String::new();
        let mut changed = Vec::new();
        for word in words {
            let Value::String(text) = word else {
                changed.push(word.clone());
                continue;
            };
            let assignment = text
                .split_once('=')
                .filter(|(name, _)| text.starts_with('-') || is_variable(name));
            changed.push(match assignment {
                Some((name, value)) if is_literal(value) && is_secret_word(name, value) => self
                    .reference(
                        &format!("{server}_{}", name.trim_start_matches('-')),
                        server,
                        &format!("{name}="),
                        value,
                    ),
                None if is_literal(text)
                    && !text.starts_with('-')
                    && is_secret_word(&option, text) =>
                {
                    let name = if option.is_empty() {
                        "argument"
                    } else {
                        option.trim_start_matches('-')
                    };
                    self.reference(&format!("{server}_{name}"), server, "", text)
                }
                _ => word.clone(),
            });
            option = if text.starts_with('-') && assignment.is_none() {
                text.clone()
            } else {
                String::new()
            };
        }
        Value::Array(changed)
    }

    /// A reference to a variable with this value, which is created if necessary.
    fn reference(&mut self, name: &str, server: &str, before: &str, value: &str) -> Value {
        let name = variable_name(name);
        let is_free = |known: &[(String, String)], name: &str| {
            known
                .iter()
                .all(|(other, text)| other != name || text == value)
        };
        let with_server = variable_name(&format!("{server}_{name}"));
        let numbered =
            (2..=self.variables.len() + 2).map(|number| format!("{with_server}_{number}"));
        let mut names = [name.clone(), with_server.clone()]
            .into_iter()
            .chain(numbered);
        let name = names
            .find(|name| is_free(&self.variables, name))
            .unwrap_or(name);
        if !self.variables.iter().any(|(known, _)| *known == name) {
            self.variables.push((name.clone(), value.to_owned()));
        }
        Value::String(format!("{before}${{{name}}}"))
    }

    /// The variables as text for `envFile`, which shells can read, too.
    pub(super) fn to_env_file(&self) -> String {
        let line = |(name, value): &(String, String)| {
            if value.contains(['\'', '\n']) {
                let escaped = value
                    .replace('\\', "\\\\")
                    .replace('"', "\\\"")
                    // A shell would expand these.
                    .replace('$', "\\$")
                    .replace('`', "\\`")
                    .replace('\n', "\\n");
                return format!("{name}=\"{escaped}\"\n");
            }
            format!("{name}='{value}'\n")
        };
        let lines: String = self.variables.iter().map(line).collect();
        format!("# Secrets that `fanlight import` found in files of clients.\n{lines}")
    }
}

/// Whether a text refers to no variable.
fn is_literal(text: &str) -> bool {
    !text.contains("${")
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// Whether a word of a command is secret, judged by the preceding option or by its form.
fn is_secret_word(option: &str, word: &str) -> bool {
    let is_named = may_be_secret(option, "harmless") && !matches!(word, "true" | "false");
    let is_header = word.to_lowercase().contains("authorization:")
        || word.to_lowercase().starts_with("bearer ");
    is_named || is_header || looks_like_token(word)
}

/// Whether a word looks like a token: a known prefix, or a long run of letters and digits. Names of
/// packages and paths have neither.
fn looks_like_token(word: &str) -> bool {
    let is_mixed = |run: &str| {
        let has = |is: fn(char) -> bool| run.chars().any(is);
        run.len() >= 24 && has(|c| c.is_ascii_digit()) && has(|c| c.is_ascii_alphabetic())
    };
    begins_like_token(word)
        || (!word.contains(['/', '\\'])
            && word
                .split(|c: char| !c.is_ascii_alphanumeric())
                .any(is_mixed))
        || is_secret_url(word)
}

/// Whether a URL has user information, or a query value that may be secret.
fn is_secret_url(text: &str) -> bool {
    let Ok(url) = url::Url::parse(text) else {
        return false;
    };
    let has_secret = || {
        url.query_pairs()
            .any(|(name, value)| may_be_secret(&name, &value))
    };
    url.has_host()
        && is_literal(text)
        && (!url.username().is_empty() || url.password().is_some() || has_secret())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn env(key: &str, value: &str) -> Value {
        json!({ "env": { key: value } })
    }

    #[test]
    fn secrets_are_moved_and_the_rest_stays() {
        let mut moved = Moved::default();
        let words = [
            "-y",
            "@me/server-2024",
            "--api-key",
            "abc",
            "--token=def",
            "--port",
            "8080",
            "--header",
            "Authorization: Bearer x",
        ];
        let entry = json!({
            "command": "npx",
            "args": words,
            "env": { "LEVEL": "debug", "API_KEY": "k1", "O": "${O}" },
            "headers": { "Authorization": "Bearer t1" },
        });
        assert_eq!(
            moved.entry("git", &entry).to_string(),
            r#"{"command":"npx","args":["-y","@me/server-2024","--api-key","${GIT_API_KEY}","--token=${GIT_TOKEN}","--port","8080","--header","${GIT_HEADER}"],"env":{"LEVEL":"debug","API_KEY":"${API_KEY}","O":"${O}"},"headers":{"Authorization":"Bearer ${GIT_AUTHORIZATION}"}}"#
        );
        // The same name with another value needs another variable.
        assert_eq!(
            moved.entry("hub", &env("API_KEY", "k1")).to_string(),
            r#"{"env":{"API_KEY":"${API_KEY}"}}"#
        );
        assert_eq!(
            moved.entry("hub", &env("API_KEY", "k2")).to_string(),
            r#"{"env":{"API_KEY":"${HUB_API_KEY}"}}"#
        );
        let url = json!({ "url": "https://h/mcp?api_key=abc" });
        assert_eq!(moved.entry("s", &url).to_string(), r#"{"url":"${S_URL}"}"#);
        let plain = json!({ "url": "https://h/mcp?page=2" });
        assert_eq!(moved.entry("s", &plain), plain);
    }

    #[test]
    fn env_file_starts_no_program_in_a_shell() {
        let mut moved = Moved::default();
        let hostile = "it's $(echo ran) `echo ran` $HOME \\$(echo ran)";
        moved.entry("a", &env("A_TOKEN", hostile));
        let script = format!("{}printf %s \"$A_TOKEN\"", moved.to_env_file());
        let shell = std::process::Command::new("sh")
            .args(["-c", &script])
            .output();
        assert_eq!(String::from_utf8(shell.unwrap().stdout).unwrap(), hostile);
    }

    #[test]
    fn env_file_is_read_back() {
        let mut moved = Moved::default();
        moved.entry("a", &env("A_TOKEN", "it's \"x\\\n"));
        moved.entry("a", &env("B_TOKEN", "plain $HOME #1"));
        let text = moved.to_env_file();
        assert!(
            text.ends_with("A_TOKEN=\"it's \\\"x\\\\\\n\"\nB_TOKEN='plain $HOME #1'\n"),
            "{text}"
        );
    }
}
