//! Which text of a config file may be shown in a message. Everything is hidden but what is known to be harmless, so that a
//! mistyped field name or a file of one line does not print a token.

use crate::source::{Source, Span};
use crate::syntax::Syntax;
use crate::tree::{Node, Value};

/// Top-level fields whose values are shown.
const SHOWN_AT_TOP: &[&str] = &["$schema", "allowedHosts", "allowedOrigins", "limits", "listen", "path", "timeouts"];

/// Fields of a server whose values are shown.
const SHOWN_IN_SERVER: &[&str] = &[
    "concurrency",
    "cwd",
    "disabled",
    "disabledTools",
    "enabled",
    "era",
    "excludeTools",
    "includeTools",
    "prefix",
    "timeout",
    "tools",
    "type",
];

/// Fields of a server of which the start is shown: a program without its arguments, a URL up to its path.
const SHORTENED_IN_SERVER: &[&str] = &["command", "httpUrl", "serverUrl", "url"];

/// What is hidden in one file.
pub(crate) enum Masked {
    /// Spans, in the order of the file.
    Spans(Vec<Span>),
    /// The file could not be parsed: every value is hidden, its punctuation is not.
    Lexically(Syntax),
}

impl Masked {
    /// Finds the secrets of a parsed file.
    pub(crate) fn of(root: Option<&Node>, source: &Source, syntax: Syntax) -> Self {
        let Some(root) = root else {
            return Self::Lexically(syntax);
        };
        let mut spans = Vec::new();
        collect_top(root, source, &mut spans);
        // In order, so that a line is masked in one pass; text behind an alias was collected more than once.
        spans.sort_by_key(|span| (span.start, span.end));
        spans.dedup();
        Self::Spans(spans)
    }

    /// The text of a part of a line, each hidden character replaced by one asterisk.
    pub(crate) fn line(&self, source: &Source, line: Span, part: Span) -> String {
        // What is a key in broken text is only known from the start of the line.
        let masked = match self {
            Self::Spans(spans) => return mask_spans(source.slice(part), part, spans),
            Self::Lexically(Syntax::Json) => mask_json(source.slice(line)),
            Self::Lexically(Syntax::Yaml) => mask_yaml(source.slice(line)),
        };
        let skipped = source.slice(Span::new(line.start, part.start)).chars().count();
        masked.chars().skip(skipped).take(source.slice(part).chars().count()).collect()
    }
}

fn collect_top(root: &Node, source: &Source, spans: &mut Vec<Span>) {
    let Value::Map(entries) = &root.value else {
        return hide(root, spans);
    };
    for entry in entries {
        match entry.key.as_str() {
            "mcpServers" | "servers" => collect_servers(&entry.value, source, spans),
            "admin" => collect_admin(&entry.value, spans),
            key if SHOWN_AT_TOP.contains(&key) => {}
            _ => hide(&entry.value, spans),
        }
    }
}

fn collect_admin(admin: &Node, spans: &mut Vec<Span>) {
    let Value::Map(entries) = &admin.value else { return hide(admin, spans) };
    entries.iter().filter(|entry| entry.key != "listen").for_each(|entry| hide(&entry.value, spans));
}

fn collect_servers(servers: &Node, source: &Source, spans: &mut Vec<Span>) {
    let Value::Map(servers) = &servers.value else {
        return hide(servers, spans);
    };
    for server in servers {
        let Value::Map(fields) = &server.value.value else {
            hide(&server.value, spans);
            continue;
        };
        for field in fields {
            let key = field.key.as_str();
            let is_text = matches!(field.value.value, Value::String(_));
            if is_text && SHORTENED_IN_SERVER.contains(&key) {
                let span = field.value.span;
                let shown = shown_start(source.slice(span), key == "command");
                spans.push(Span::new(span.start + shown, span.end));
            } else if !SHOWN_IN_SERVER.contains(&key) {
                hide(&field.value, spans);
            }
        }
    }
}

/// How many bytes of a command or URL are shown. User information before an `@` is not.
fn shown_start(text: &str, is_command: bool) -> usize {
    if is_command {
        return text.find(char::is_whitespace).unwrap_or(text.len());
    }
    let authority = text.find("://").map_or(0, |at| at + 3);
    let rest = text.get(authority..).unwrap_or_default();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    if rest.get(..end).is_some_and(|host| host.contains('@')) {
        return authority;
    }
    authority + end
}

/// Hides every scalar below a node; keys stay.
fn hide(node: &Node, spans: &mut Vec<Span>) {
    match &node.value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(_) | Value::String(_) => spans.push(node.span),
        Value::List(items) => items.iter().for_each(|item| hide(item, spans)),
        Value::Map(entries) => entries.iter().for_each(|entry| hide(&entry.value, spans)),
    }
}

/// Hides the part of `spans` that lies in `part`, of which `text` is the text, except quotes and the names of variables.
fn mask_spans(text: &str, part: Span, spans: &[Span]) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut variable = Variable::default();
    let passed = spans.partition_point(|span| span.end <= part.start);
    let mut spans = spans.iter().skip(passed).peekable();
    for (index, c) in text.char_indices() {
        let at = part.start + index;
        while spans.next_if(|span| span.end <= at).is_some() {}
        let hidden = spans.peek().is_some_and(|span| span.start <= at);
        let rest = text.get(index..).unwrap_or_default();
        let shown = variable.shows(c, rest) || c.is_whitespace() || matches!(c, '"' | '\'' | ',');
        masked.push(if hidden && !shown { '*' } else { c });
    }
    masked
}

/// Follows `${NAME` and `${NAME:-` through a text: names are shown, defaults are not.
#[derive(Default)]
struct Variable {
    hidden_to_go: usize,
    shown_to_go: usize,
    open: usize,
}

impl Variable {
    fn shows(&mut self, c: char, rest: &str) -> bool {
        if rest.starts_with("$${") {
            // A literal `${`, so what follows is no name.
            self.hidden_to_go = 3;
        }
        if self.hidden_to_go > 0 {
            self.hidden_to_go -= 1;
            return false;
        }
        if rest.starts_with("${") {
            let name = rest.chars().skip(2);
            let name_len = name.take_while(|c| c.is_ascii_alphanumeric() || *c == '_').count();
            let after = rest.get(2 + name_len..).unwrap_or_default();
            let operator = if after.starts_with(":-") { 2 } else { 0 };
            self.shown_to_go = 2 + name_len + operator;
            self.open += 1;
        }
        if self.shown_to_go > 0 {
            self.shown_to_go -= 1;
            return true;
        }
        if c == '}' && self.open > 0 {
            self.open -= 1;
            return true;
        }
        false
    }
}

/// Hides what may be a value in a line of broken JSON: every string or word but those that a colon follows and that start
/// the line or follow a brace or comma.
fn mask_json(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = None;
    while let Some(c) = rest.chars().next() {
        let length = token_length(rest, c);
        let (token, after) = rest.split_at(length);
        let is_key = matches!(before, None | Some('{' | ',')) && after.trim_start().starts_with(':');
        if is_key || matches!(token, "true" | "false" | "null") {
            masked.push_str(token);
        } else {
            masked.extend(token.chars().map(mask_word_character));
        }
        if !c.is_whitespace() {
            before = Some(c);
        }
        rest = after;
    }
    masked
}

/// The length of the string or word that starts with `c`, or of `c`.
fn token_length(text: &str, c: char) -> usize {
    if c == '"' {
        let mut escaped = false;
        for (at, c) in text.char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return at + 1,
                _ => {}
            }
        }
        return text.len();
    }
    if c.is_alphanumeric() {
        return text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    }
    c.len_utf8()
}

/// Hides what may be a value in a line of broken YAML: all after the first `key:`, or everything.
fn mask_yaml(text: &str) -> String {
    let key_end = match text.find(": ") {
        Some(at) => at,
        None if text.trim_end().ends_with(':') => text.len(),
        None => 0,
    };
    let (key, rest) = text.split_at(key_end);
    key.chars().chain(rest.chars().map(mask_word_character)).collect()
}

fn mask_word_character(c: char) -> char {
    if c.is_alphanumeric() { '*' } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_json_shows_keys_and_punctuation() {
        assert_eq!(
            mask_json(r#"  "env": {"KEY": "s3cret", 'x', true ] "tail"#),
            r#"  "env": {"KEY": "******", '*', true ] "****"#
        );
        assert_eq!(mask_json(r#""a\"b": "c\"d"#), r#""a\"b": "*\"*"#);
    }

    #[test]
    fn broken_yaml_shows_keys_and_punctuation() {
        assert_eq!(mask_yaml("  KEY: ab: cd"), "  KEY: **: **");
        assert_eq!(mask_yaml("  - s3cret-token"), "  - ******-*****");
        assert_eq!(mask_yaml("lissten 8080"), "******* ****");
        assert_eq!(mask_yaml("      MIIEs3cret=="), "      **********==");
        assert_eq!(mask_yaml("\tlisten: x"), "\tlisten: *");
        assert_eq!(mask_yaml("  env:"), "  env:");
    }

    #[test]
    fn urls_show_scheme_and_host_and_commands_their_program() {
        let shown = |text: &'static str| text.get(..shown_start(text, false)).unwrap();
        assert_eq!(shown("https://host:1/s3cret?x"), "https://host:1");
        assert_eq!(shown("https://me:pw@host/x"), "https://");
        assert_eq!(shown("\"htps:/host/x"), "\"htps:");
        assert_eq!(shown_start("npx -y --key=s3cret", true), 3);
    }
}
