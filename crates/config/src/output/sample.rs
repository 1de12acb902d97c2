//! The sample file, config/fanlight.yaml: every option with its default or an example.

use serde_json::Value;

use crate::definition::{Definition, Form, Section};
use crate::option::Options as _;
use crate::{Config, Server};

/// The longest line.
const WIDTH: usize = 120;

/// Example servers. Options that it lacks are listed after it.
const SERVERS: &str = include_str!("sample_servers.yaml");

/// Example endpoints.
const ENDPOINTS: &str = include_str!("sample_endpoints.yaml");

/// An example of `auth`, commented out, since the listener needs everything that it names.
const AUTH: &str = include_str!("sample_auth.yaml");

/// A config file in YAML with every option and its explanation, with a line break at the end.
pub fn sample() -> String {
    let mut text = include_str!("sample_head.yaml").to_owned();
    for option in Config::SECTION.definitions {
        match (option.form)() {
            Form::Named(_) if option.key == "mcpServers" => {
                text.push('\n');
                comment(&mut text, "", option.about);
                text.push_str(&format!("{}:\n{SERVERS}", option.key));
                further_options(&mut text, "    # ");
            }
            Form::Paths(_) => {
                text.push('\n');
                comment(&mut text, "", option.about);
                text.push_str(&format!("{}:\n{ENDPOINTS}", option.key));
            }
            Form::WordOr(..) => {
                text.push('\n');
                comment(&mut text, "", option.about);
                text.push_str(AUTH);
            }
            form => write(&mut text, "", option, form),
        }
    }
    text
}

fn section(text: &mut String, indent: &str, section: &Section) {
    for option in section.definitions {
        write(text, indent, option, (option.form)());
    }
}

fn write(text: &mut String, indent: &str, option: &Definition, form: Form) {
    if indent.is_empty() && (matches!(form, Form::Section(_)) || value(option).is_some()) {
        text.push('\n');
    }
    if let Form::Section(inner) = form
        && option.example.is_empty()
    {
        comment(text, indent, option.about);
        text.push_str(&format!("{indent}{}:\n", option.key));
        section(text, &format!("{indent}  "), inner);
    } else if let Some(value) = value(option) {
        let (mark, value) = value
            .strip_prefix("# ")
            .map_or(("", value.as_str()), |value| ("# ", value));
        let line = format!("{indent}{mark}{}: {value}", option.key);
        if !indent.is_empty() && line.len() + " # ".len() + option.about.len() <= WIDTH {
            text.push_str(&format!("{line} # {}\n", option.about));
        } else {
            comment(text, indent, option.about);
            text.push_str(&format!("{line}\n"));
        }
    }
}

/// The sample's value of an option; `None` for another name of an option.
fn value(option: &Definition) -> Option<String> {
    if !option.example.is_empty() {
        return Some(option.example.to_owned());
    }
    option.default().map(|default| match default {
        Value::String(text) => text,
        other => other.to_string(),
    })
}

/// Lists the options of a server that the text above does not show, as comments.
fn further_options(text: &mut String, indent: &str) {
    let shown = |option: &&Definition| SERVERS.contains(&format!(" {}:", option.key));
    for option in Server::SECTION
        .definitions
        .iter()
        .filter(|option| !shown(option))
    {
        write(text, indent, option, (option.form)());
    }
}

fn comment(text: &mut String, indent: &str, about: &str) {
    let mark = format!("{}#", indent.trim_end_matches("# "));
    let mut line = mark.clone();
    for word in about.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            text.push_str(&format!("{line}\n"));
            line.clone_from(&mark);
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&format!("{line}\n"));
}
