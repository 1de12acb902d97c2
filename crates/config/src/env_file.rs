//! Files of environment variables for `envFile`: one `NAME=value` per line.

use std::path::Path;

use crate::{ConfigErrors, ConfigFile, MAX_FILE_SIZE, Secret, text_file};

/// Names and values.
pub(crate) type Pairs = Vec<(String, Secret)>;

/// The variables of a file in its order, and its fingerprint.
pub(crate) fn read(path: &Path) -> Result<(Pairs, ConfigFile), ConfigErrors> {
    let (text, file) = text_file::read(path, MAX_FILE_SIZE)?;
    if text.len() > MAX_FILE_SIZE {
        return Err(ConfigErrors::from_file(
            path,
            "the file is too large".to_owned(),
            "is this the right file?",
        ));
    }
    let pairs = parse(&text).map_err(|line| {
        let message = format!("line {line} is no variable");
        ConfigErrors::from_file(
            path,
            message,
            "write `NAME=value`, a variable a line; `#` begins a comment",
        )
    })?;
    Ok((pairs, file))
}

/// The variables of a text, or the number of the first invalid line.
fn parse(text: &str) -> Result<Pairs, usize> {
    let mut pairs = Vec::new();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or(index + 1)?;
        let name = name.trim();
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if name.is_empty() || !name.chars().all(is_name) || value.contains('\0') {
            return Err(index + 1);
        }
        pairs.push((name.to_owned(), Secret::new(unquoted(value.trim()))));
    }
    Ok(pairs)
}

/// A value without its quotes. In double quotes `\n`, `\"` and `\\` are escapes; outside of quotes
/// ` #` begins a comment.
fn unquoted(value: &str) -> String {
    let within = |quote: char| {
        let rest = value.strip_prefix(quote)?;
        let end = closing(rest, quote)?;
        rest.get(..end)
    };
    if let Some(literal) = within('\'') {
        return literal.to_owned();
    }
    if let Some(escaped) = within('"') {
        let mut text = String::with_capacity(escaped.len());
        let mut chars = escaped.chars();
        while let Some(c) = chars.next() {
            match (c, c == '\\') {
                (_, true) => match chars.next() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some(other) => text.push(other),
                    None => text.push('\\'),
                },
                (c, false) => text.push(c),
            }
        }
        return text;
    }
    let end = value.find(" #").unwrap_or(value.len());
    value.get(..end).unwrap_or(value).trim_end().to_owned()
}

/// The position of the closing quote; a backslash escapes only in double quotes.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let is_end = c == quote && !escaped;
        escaped = c == '\\' && !escaped && quote == '"';
        is_end.then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Result<Vec<(String, String)>, usize> {
        parse(text).map(|pairs| {
            pairs
                .into_iter()
                .map(|(name, value)| (name, value.expose().to_owned()))
                .collect()
        })
    }

    #[test]
    fn variables_are_read_as_shells_and_editors_write_them() {
        let text = "# comment\nA=1\n\nexport B = two words # not this\nC='it#s $HOME'\nD=\"a\\n\\\"b\\\" # c\"\nE=\nF=a=b\n";
        let expected = [
            ("A", "1"),
            ("B", "two words"),
            ("C", "it#s $HOME"),
            ("D", "a\n\"b\" # c"),
            ("E", ""),
            ("F", "a=b"),
        ];
        let expected: Vec<_> = expected
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        assert_eq!(plain(text), Ok(expected));
    }

    #[test]
    fn line_that_is_no_variable_is_named_by_its_number() {
        assert_eq!(plain("A=1\ns3cret\n"), Err(2));
        assert_eq!(plain("A B=1\n"), Err(1));
        assert_eq!(plain("=1\n"), Err(1));
    }
}
