//! Values that an editor would ask its user for, `${input:…}`: asked for on a terminal when Fanlight starts, and kept for as
//! long as it runs, so that a changed configuration asks nobody.

use std::collections::BTreeMap;
use std::io::{BufRead as _, IsTerminal as _};
use std::sync::{Mutex, PoisonError};

use fanlight_config::Input;
use fanlight_protocol::visible::escaped_lines;

use crate::out::complain;

/// The values that were given, by the names of the inputs.
static GIVEN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// The value of an input that was given before.
pub(crate) fn remembered(input: &Input) -> Option<String> {
    GIVEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&input.id)
        .cloned()
}

/// The value of an input, for which the user is asked if there is a terminal. An empty answer is none.
pub(crate) fn ask(input: &Input) -> Option<String> {
    if let Some(value) = remembered(input) {
        return Some(value);
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return None;
    }
    let value = answer(input)?;
    GIVEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(input.id.clone(), value.clone());
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

/// The line that a user types after a prompt, or that another program writes.
pub(crate) fn line(prompt: &str, is_secret: bool) -> Option<String> {
    // Before the question, which may be answered at once.
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

/// The value that a line stands for: itself, or the option of this number.
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

/// A terminal that does not show what is typed, until this is dropped.
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
