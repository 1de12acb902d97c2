//! Escapes invisible characters, and characters that change how other text looks, in texts of
//! peers.
//!
//! A name with a bidirectional override looks like another name on a terminal and in a log. A
//! control character moves the cursor or begins a forged line. Escapes have the form of JSON
//! (`\u202e`), so JSON stays JSON with the same meaning.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Escapes each invisible character of `text`, including control characters.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escaped_but(text, |_| false)
}

/// The first line of untrusted text, at most `longest` characters, with invisible ones escaped.
pub fn plain(text: &str, longest: usize) -> String {
    let line = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    let mut shown: String = line.trim().chars().take(longest).collect();
    if line.trim().chars().count() > longest {
        shown.push('…');
    }
    escaped(&shown).into_owned()
}

/// Like [`escaped`], for a whole output. Line breaks, tabs and terminal colour sequences stay.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    escaped_but(text, |rest| {
        rest.starts_with(['\n', '\t']) || is_colour(rest)
    })
}

/// Like [`escaped_lines`], for a single line such as a log line. Line breaks within it are escaped
/// too.
pub fn escaped_line(text: &str) -> Cow<'_, str> {
    escaped_but(text, |rest| rest.starts_with('\t') || is_colour(rest))
}

/// Whether `text` begins with a sequence that only changes weight or colour: `ESC [ digits m` with
/// at most two digits. The sequence that hides text does not count.
fn is_colour(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("\u{1b}[") else {
        return false;
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let hides = rest.starts_with("8m") || rest.starts_with("08m");
    (1..=2).contains(&digits) && rest.as_bytes().get(digits) == Some(&b'm') && !hides
}

fn escaped_but(text: &str, stays: impl Fn(&str) -> bool) -> Cow<'_, str> {
    let hidden = |(at, c): &(usize, char)| is_hidden(*c) && !text.get(*at..).is_some_and(&stays);
    let mut found = text.char_indices().filter(hidden).peekable();
    if found.peek().is_none() {
        return Cow::Borrowed(text);
    }
    let (mut out, mut copied) = (String::with_capacity(text.len() + 16), 0);
    for (at, c) in found {
        out.push_str(text.get(copied..at).unwrap_or_default());
        copied = at + c.len_utf8();
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(out)
}

/// Whether the character is invisible or a formatting character: a control character, one of the
/// general categories Cf, Zl and Zp of Unicode 16, or another with the property
/// `Default_Ignorable_Code_Point`. The two selectors for text and emoji presentation are not hidden.
fn is_hidden(c: char) -> bool {
    if c < '\u{ad}' {
        return c.is_control();
    }
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0d}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped() {
        for (text, shown) in [
            (
                "plain é 漢字 ❤\u{fe0f} \\u202e",
                "plain é 漢字 ❤\u{fe0f} \\u202e",
            ),
            ("read\u{202e}elif\u{202c}", "read\\u202eelif\\u202c"),
            ("a\u{200b}b\u{feff}c\u{ad}", "a\\u200bb\\ufeffc\\u00ad"),
            (
                "\u{2066}x\u{2069}\u{2028}\u{2029}\u{61c}",
                "\\u2066x\\u2069\\u2028\\u2029\\u061c",
            ),
            ("tag\u{e0041}\u{e01ef}", "tag\\udb40\\udc41\\udb40\\uddef"),
            (
                "\u{1b}[2J\n\t\u{7f}\u{9b}",
                "\\u001b[2J\\u000a\\u0009\\u007f\\u009b",
            ),
        ] {
            assert_eq!(escaped(text), shown);
        }
    }

    #[test]
    fn output_keeps_its_lines_and_colours_only() {
        assert_eq!(
            escaped_line("\u{1b}[1mERROR\u{1b}[0m a\nINFO b"),
            "\u{1b}[1mERROR\u{1b}[0m a\\u000aINFO b"
        );
        let kept = "a\n\tb \u{1b}[1mbold\u{1b}[0m \u{1b}[32mgreen\u{1b}[0m";
        assert_eq!(escaped_lines(kept), kept);
        for (text, shown) in [
            ("\u{1b}[8mhidden", "\\u001b[8mhidden"),
            (
                "\u{1b}[2Jgone\u{1b}]0;title\u{7}",
                "\\u001b[2Jgone\\u001b]0;title\\u0007",
            ),
            (
                "\u{1b}[m\u{1b}[1;8mx\r\u{202e}",
                "\\u001b[m\\u001b[1;8mx\\u000d\\u202e",
            ),
        ] {
            assert_eq!(escaped_lines(text), shown);
        }
    }

    /// An escape within a JSON string means the character itself.
    #[test]
    fn json_keeps_its_meaning() {
        let text = "{\"a\u{202e}\":\"\u{e0041}\u{7f}\"}";
        let (plain, shown): (serde_json::Value, serde_json::Value) = (
            serde_json::from_str(text).unwrap(),
            serde_json::from_str(&escaped_lines(text)).unwrap(),
        );
        assert_eq!(plain, shown);
    }

    #[test]
    fn plain_removes_control_characters() {
        assert_eq!(
            plain("\n \u{1b}[2Jclear\u{7}ed \nmore", 80),
            "\\u001b[2Jclear\\u0007ed"
        );
        assert_eq!(plain("abcdef", 3), "abc…");
    }
}
