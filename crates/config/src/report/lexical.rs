//! The text of a line that a message may show if the file could not be parsed.

use super::harmless::{holds_secrets, is_harmless};
use crate::document::{Source, Span, Syntax};

/// A line of a broken file, with an asterisk for each hidden character.
pub(super) fn mask(source: &Source, syntax: Syntax, line: Span) -> String {
    let (before, text) = (source.slice(Span::new(0, line.start)), source.slice(line));
    match syntax {
        Syntax::Json => mask_json(text, &holder_in_json(before)),
        Syntax::Yaml => mask_pair(text, ": ", &holders_in_yaml(before, text)),
        Syntax::Toml => mask_pair(text, " = ", &holders_in_toml(before)),
    }
}

/// Hides possible secrets in a line of broken JSON. Visible are strings or words before a colon
/// that start the line or follow a brace or comma, and harmless values of such keys. `holder` is
/// the key of the mapping around the line.
fn mask_json(text: &str, holder: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = None;
    let mut key = String::new();
    let mut holders = vec![holder.to_owned()];
    while let Some(c) = rest.chars().next() {
        let length = token_length(rest, c);
        let (token, after) = rest.split_at(length);
        let is_key =
            matches!(before, None | Some('{' | ',')) && after.trim_start().starts_with(':');
        if is_key {
            key = token.trim_matches('"').to_owned();
        }
        match c {
            '{' | '[' => holders.push(std::mem::take(&mut key)),
            '}' | ']' => drop(holders.pop()),
            _ => {}
        }
        let is_value = before == Some(':')
            && is_complete(token)
            && matches!(after.trim_start().chars().next(), None | Some(',' | '}'));
        let is_shown = is_value
            && !holders.iter().any(|holder| holds_secrets(holder))
            && is_harmless(&key, token.trim_matches('"'));
        if is_key || is_shown || matches!(token, "true" | "false" | "null") {
            masked.push_str(token);
        } else {
            masked.extend(token.chars().map(mask_word_character));
        }
        if !c.is_whitespace() {
            before = Some(c);
            // A key has one value, right after its colon.
            if !is_key && c != ':' {
                key.clear();
            }
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
        return text
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(text.len());
    }
    c.len_utf8()
}

/// Whether a JSON token is a complete string or number.
fn is_complete(token: &str) -> bool {
    let is_string =
        token.len() >= 2 && token.starts_with('"') && token.ends_with('"') && !token.contains('\\');
    is_string || token.chars().all(|c| c.is_ascii_digit())
}

/// Hides possible secrets in a line of broken YAML or TOML: everything after the first separator of
/// key and value unless it is harmless; without a separator, everything.
fn mask_pair(text: &str, separator: &str, holders: &[String]) -> String {
    let key_end = match text.find(separator) {
        Some(at) => at,
        None if text.trim_end().ends_with(':') || text.trim_start().starts_with('[') => text.len(),
        None => 0,
    };
    let (key, rest) = text.split_at(key_end);
    let value = rest.strip_prefix(separator).unwrap_or_default().trim();
    let plain = value.strip_prefix(['"', '\'']).unwrap_or(value);
    let plain = plain.strip_suffix(['"', '\'']).unwrap_or(plain);
    let is_one = !plain.contains([':', '"', '\'', '{', '[', '#', '!', '&', '*', '|', '>'])
        || is_address(plain);
    let name = key
        .trim()
        .trim_start_matches("- ")
        .trim_matches(['"', '\'']);
    if key_end > 0
        && is_one
        && !holders.iter().any(|holder| holds_secrets(holder))
        && is_harmless(name, plain)
    {
        return text.to_owned();
    }
    key.chars()
        .chain(rest.chars().map(mask_word_character))
        .collect()
}

fn is_address(text: &str) -> bool {
    text.parse::<std::net::SocketAddr>().is_ok()
}

/// The keys of the mappings around a line of YAML: the nearest lines above with less indentation.
fn holders_in_yaml(before: &str, line: &str) -> Vec<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut least = indent(line);
    let mut holders = Vec::new();
    for above in before
        .lines()
        .rev()
        .filter(|above| !above.trim().is_empty())
    {
        if indent(above) < least || (above.trim_start().starts_with("- ") && indent(above) == least)
        {
            least = indent(above);
            let key = above.split(':').next().unwrap_or_default();
            holders.push(
                key.trim()
                    .trim_start_matches("- ")
                    .trim_matches(['"', '\''])
                    .to_owned(),
            );
        }
    }
    holders
}

/// The parts of the header above a line of TOML.
fn holders_in_toml(before: &str) -> Vec<String> {
    let header = before
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| line.starts_with('['));
    let part = |part: &str| part.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
    header
        .map(|header| header.split('.').map(part).collect())
        .unwrap_or_default()
}

/// The key of the innermost open mapping at the end of a JSON text that may hold secrets, or an
/// empty text.
fn holder_in_json(before: &str) -> String {
    let (mut open, mut key, mut last) = (Vec::new(), String::new(), String::new());
    let mut rest = before;
    while let Some(c) = rest.chars().next() {
        let (token, after) = rest.split_at(token_length(rest, c));
        match c {
            ':' => key = std::mem::take(&mut last),
            '{' | '[' => open.push(std::mem::take(&mut key)),
            '}' | ']' => drop(open.pop()),
            '"' => last = token.trim_matches('"').to_owned(),
            _ => {}
        }
        rest = after;
    }
    open.into_iter()
        .find(|key| holds_secrets(key))
        .unwrap_or_default()
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
            mask_json(r#"  "env": {"KEY": "s3cret", 'x', true ] "tail"#, ""),
            r#"  "env": {"KEY": "******", '*', true ] "****"#
        );
        assert_eq!(mask_json(r#""a\"b": "c\"d"#, ""), r#""a\"b": "*\"*"#);
    }

    #[test]
    fn broken_yaml_shows_keys_and_punctuation() {
        let yaml = |line| mask_pair(line, ": ", &[]);
        assert_eq!(yaml("  KEY: ab: cd"), "  KEY: **: **");
        assert_eq!(yaml("  - s3cret-token"), "  - ******-*****");
        assert_eq!(yaml("lissten 8080"), "******* ****");
        assert_eq!(yaml("      MIIEs3cret=="), "      **********==");
        assert_eq!(yaml("\tlisten: x"), "\tlisten: x");
        assert_eq!(yaml("  env:"), "  env:");
    }

    #[test]
    fn harmless_values_of_broken_files_are_shown() {
        assert_eq!(
            mask_json(r#"  "model": "gpt-5" "x": 1"#, ""),
            r#"  "model": "***-*" "*": *"#
        );
        assert_eq!(
            mask_json(r#"  "model": "gpt-5", "token": "abc","#, ""),
            r#"  "model": "gpt-5", "token": "***","#
        );
        assert_eq!(mask_json(r#"  "pet": "rex","#, "env"), r#"  "pet": "***","#);
        assert_eq!(
            mask_json(r#"{"env": {"pet": "rex", "#, ""),
            r#"{"env": {"pet": "***", "#
        );
        assert_eq!(mask_pair("model = \"gpt-5", " = ", &[]), "model = \"gpt-5");
        assert_eq!(
            mask_pair("pet = \"rex\"", " = ", &["env".to_owned()]),
            "pet = \"***\""
        );
    }

    #[test]
    fn mapping_around_a_line_is_found() {
        assert_eq!(
            holder_in_json("{\"a\": {\"env\": {\n\"x\": \"}\",\n"),
            "env"
        );
        assert_eq!(holder_in_json("{\"a\": {\"env\": {}, \n"), "");
        assert_eq!(
            holders_in_yaml("a:\n  env:\n    b: 1\n", "    c: 2"),
            ["env", "a"]
        );
        assert_eq!(
            holders_in_toml("[x]\n[mcp_servers.a.env]\nk = 1\n"),
            ["mcp_servers", "a", "env"]
        );
    }
}
