//! Values of `${input:…}`, which an editor would request from its user. Fanlight asks on a terminal
//! when it starts, and remembers the answers while it runs, so that a reload does not ask again.

use std::collections::BTreeMap;
use std::io::{BufRead as _, IsTerminal as _};

use fanlight_config::Input;
use fanlight_protocol::visible::escaped_lines;
use parking_lot::Mutex;

use crate::out::complain;

/// The given values by the names of their inputs.
static GIVEN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// The earlier answer for an input.
pub fn remembered_answer(input: &Input) -> Option<String> {
    GIVEN.lock().get(&input.id).cloned()
}

/// The value of an input. If it is new and there is a terminal, the user is asked; an empty answer
/// counts as none.
pub fn ask(input: &Input) -> Option<String> {
    if let Some(value) = remembered_answer(input) {
        return Some(value);
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return None;
    }
    let value = answer(input)?;
    GIVEN.lock().insert(input.id.clone(), value.clone());
    Some(value)
}

fn answer(input: &Input) -> Option<String> {
    let mut prompt = escaped_lines(&input.description).into_owned();
    for (index, option) in input.options.iter().enumerate() {
        prompt += &format!("\n  {}) {}", index + 1, escaped_lines(option));
    }
    match &input.default {
        Some(default) if !input.is_secret => prompt += &format!(" [{}]: ", escaped_lines(default)),
        _ => prompt += ": ",
    }
    chosen(&line(&prompt, input.is_secret)?, &input.options)
}

/// Reads a line from standard input after a prompt.
pub fn line(prompt: &str, is_secret: bool) -> Option<String> {
    // Hide the echo before the question, since the answer may come at once.
    let echo = is_secret.then(HiddenEcho::start);
    complain(prompt);
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    if echo.is_some() {
        complain("\n");
    }
    read.ok()?;
    Some(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// The value for a line: the line itself, or the option with this number.
fn chosen(line: &str, options: &[String]) -> Option<String> {
    if line.is_empty() {
        return None;
    }
    let number = line
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_sub(1));
    let option = number
        .and_then(|index| options.get(index))
        .filter(|_| !options.iter().any(|option| option == line));
    Some(option.map_or_else(|| line.to_owned(), Clone::clone))
}

/// A terminal with hidden echo, until this is dropped.
struct HiddenEcho {
    #[cfg(unix)]
    before: Option<rustix::termios::Termios>,
}

#[cfg(unix)]
impl HiddenEcho {
    fn start() -> Self {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let before = tcgetattr(std::io::stdin()).ok();
        if let Some(mut hidden) = before.clone() {
            hidden.local_modes.remove(LocalModes::ECHO);
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &hidden);
        }
        Self { before }
    }
}

#[cfg(unix)]
impl Drop for HiddenEcho {
    fn drop(&mut self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        if let Some(before) = &self.before {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

#[cfg(not(unix))]
impl HiddenEcho {
    fn start() -> Self {
        Self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_is_chosen_by_its_number_or_text() {
        let options = ["eu".to_owned(), "us".to_owned(), "1".to_owned()];
        assert_eq!(chosen("2", &options).as_deref(), Some("us"));
        assert_eq!(chosen("eu", &options).as_deref(), Some("eu"));
        assert_eq!(
            chosen("1", &options).as_deref(),
            Some("1"),
            "an option's own text counts first"
        );
        assert_eq!(chosen("9", &options).as_deref(), Some("9"));
        assert_eq!(chosen("", &options), None);
    }
}
