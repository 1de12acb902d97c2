//! The kinds of option values: reading, describing and showing them.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::definition::{Form, Visible};
use crate::option::{Fields, Options, Reader, Text};
use crate::report::problem::quoted;
use crate::syntax::{Entry, Value};
use crate::units::{format_duration, format_size, parse_count, parse_duration, parse_size};

/// A kind of value.
pub(crate) trait Kind {
    /// The type of the read value.
    type Value;
    /// Whether null is a value of the option. In other options, null means that the option is
    /// absent.
    const READS_NULL: bool = false;

    fn form(&self) -> Form;
    /// The value, or `None` after reporting a problem.
    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Self::Value>;
    /// The value in the file's notation, without secrets.
    fn show(&self, value: &Self::Value) -> Json;
}

/// Reads an option over its default.
pub(crate) fn read_into<K: Kind>(
    kind: &K,
    reader: &mut Reader<'_>,
    entry: &Entry,
    slot: &mut K::Value,
) {
    if entry.value.is_null() && !K::READS_NULL {
        return;
    }
    if let Some(value) = kind.read(reader, entry) {
        *slot = value;
    }
}

/// `true` or `false`.
pub(crate) struct Flag;

impl Kind for Flag {
    type Value = bool;

    fn form(&self) -> Form {
        Form::Flag
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<bool> {
        let what = quoted(&entry.key);
        let help = "write `true` or `false`";
        match &entry.value.value {
            Value::Bool(flag) => return Some(*flag),
            Value::String(_) => {
                let text = reader.text(entry)?;
                match text.value.as_str() {
                    "true" if text.substituted => return Some(true),
                    "false" if text.substituted => return Some(false),
                    _ => reader.error(
                        text.span,
                        format!("{what} must be a boolean, not {}", text.display()),
                        help,
                    ),
                }
            }
            _ => reader.wrong_type(&what, &entry.value, "a boolean", help),
        }
        None
    }

    fn show(&self, value: &bool) -> Json {
        json!(value)
    }
}

/// An amount within inclusive bounds.
pub(crate) struct Range<T: 'static> {
    min: T,
    max: T,
    quantity: &'static Quantity<T>,
}

/// The notation for amounts of one quantity.
struct Quantity<T> {
    name: &'static str,
    help: &'static str,
    /// The unit of a plain number.
    plain: &'static str,
    parse: fn(&str) -> Option<T>,
    show: fn(T) -> Json,
    form: fn(T, T) -> Form,
}

const DURATION: Quantity<Duration> = Quantity {
    name: "a duration",
    help: "write a number with a unit, such as `500ms`, `30s`, `5m` or `1h`",
    plain: "; a plain number is seconds",
    parse: parse_duration,
    show: |duration| json!(format_duration(duration)),
    form: |min, max| Form::Duration { min, max },
};

const SIZE: Quantity<usize> = Quantity {
    name: "a size",
    help: "write a whole number with a unit, such as `64KiB`, `16MiB` or `1MB`",
    plain: "; a plain number is bytes",
    parse: parse_size,
    show: |size| json!(format_size(size)),
    form: |min, max| Form::Size { min, max },
};

const COUNT: Quantity<usize> = Quantity {
    name: "a whole number",
    help: "write a whole number without a unit",
    plain: "",
    parse: parse_count,
    show: |count| json!(count),
    form: |min, max| Form::Count { min, max },
};

/// A duration in milliseconds or longer units, up to a day.
pub(crate) const TIME: Range<Duration> =
    time(Duration::from_millis(1), Duration::from_secs(86_400));

/// A duration up to 30 days, for sessions, tasks and caches.
pub(crate) const LONG_TIME: Range<Duration> =
    time(Duration::from_millis(1), Duration::from_secs(30 * 86_400));

/// A duration within bounds.
pub(crate) const fn time(min: Duration, max: Duration) -> Range<Duration> {
    Range {
        min,
        max,
        quantity: &DURATION,
    }
}

/// A size in bytes.
pub(crate) const fn size(min: usize, max: usize) -> Range<usize> {
    Range {
        min,
        max,
        quantity: &SIZE,
    }
}

/// A number of items.
pub(crate) const fn count(min: usize, max: usize) -> Range<usize> {
    Range {
        min,
        max,
        quantity: &COUNT,
    }
}

impl<T: Copy + PartialOrd> Kind for Range<T> {
    type Value = T;

    fn form(&self) -> Form {
        (self.quantity.form)(self.min, self.max)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<T> {
        let Quantity {
            name,
            help,
            plain,
            parse,
            show,
            ..
        } = self.quantity;
        let help = format!("{help}{plain}");
        let text = reader.amount(entry, name, &help)?;
        let Some(value) = parse(&text.value) else {
            reader.refuse(&text, &format!("is not {name}"), &help);
            return None;
        };
        if self.min <= value && value <= self.max {
            return Some(value);
        }
        let bound = |value| show(value).to_string().replace('"', "");
        let (key, min, max) = (quoted(&entry.key), bound(self.min), bound(self.max));
        let help = format!("choose a value within this range{plain}");
        reader.error(
            text.span,
            format!("{key} is out of range: at least {min}, at most {max}"),
            &help,
        );
        None
    }

    fn show(&self, value: &T) -> Json {
        (self.quantity.show)(*value)
    }
}

/// One of a few words.
pub(crate) struct Choice<E: 'static>(pub(crate) &'static [(&'static str, E)]);

impl<E: Copy + PartialEq> Kind for Choice<E> {
    type Value = E;

    fn form(&self) -> Form {
        Form::Choice(self.0.iter().map(|(word, _)| *word).collect())
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<E> {
        let find = |word: &str| {
            self.0
                .iter()
                .find(|(known, _)| *known == word)
                .map(|(_, value)| *value)
        };
        let find = |word: &str| {
            find(word).or_else(|| match word {
                "true" => find("on"),
                "false" => find("off"),
                _ => None,
            })
        };
        // YAML reads a bare `true` as a boolean, and YAML 1.1 reads `on` and `off` as ones.
        if let Value::Bool(flag) = entry.value.value
            && let Some(value) = find(if flag { "true" } else { "false" })
        {
            return Some(value);
        }
        let text = reader.text(entry)?;
        let found = find(&text.value);
        if found.is_none() {
            let words: Vec<&str> = self.0.iter().map(|(word, _)| *word).collect();
            reader.unknown_word(entry, &text, &words);
        }
        found
    }

    fn show(&self, value: &E) -> Json {
        json!(
            self.0
                .iter()
                .find(|(_, known)| known == value)
                .map(|(word, _)| *word)
        )
    }
}

/// Defines an enum, and the [`Choice`] of the words of its variants.
macro_rules! choice {
    ($(#[$of:meta])* $name:ident, $kind:ident {
        $($(#[$about:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$about])* $variant,)+ }

        pub(crate) const $kind: crate::option::kind::Choice<$name> =
            crate::option::kind::Choice(&[$(($word, $name::$variant)),+]);
    };
}

pub(crate) use choice;

/// A text that is checked and converted.
pub(crate) struct Parsed<T> {
    pub(crate) visible: Visible,
    /// The value, or `None` after reporting a problem.
    pub(crate) parse: fn(&mut Reader<'_>, Text) -> Option<T>,
    pub(crate) show: fn(&T) -> Json,
}

impl<T> Kind for Parsed<T> {
    type Value = T;

    fn form(&self) -> Form {
        Form::Text(self.visible)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<T> {
        let text = reader.text(entry)?;
        (self.parse)(reader, text)
    }

    fn show(&self, value: &T) -> Json {
        (self.show)(value)
    }
}

/// Defines a [`Parsed`] by a condition, or by a function that converts the text:
/// `fn(&str) -> Option<T>`, between its visibility and how it is shown. The two texts are the message
/// about another text, as [`Reader::refuse`] writes it, and its help.
macro_rules! checked {
    ($is_good:expr, $fault:expr, $help:expr) => {
        crate::option::kind::checked!(
            crate::definition::Visible::All,
            |text| {
                let is_good: fn(&str) -> bool = $is_good;
                is_good(text).then(|| text.to_owned())
            },
            $fault,
            $help,
            |text| serde_json::json!(text)
        )
    };
    ($visible:expr, $parse:expr, $fault:expr, $help:expr, $show:expr) => {
        crate::option::kind::Parsed {
            visible: $visible,
            parse: |reader, text| {
                let parse: fn(&str) -> Option<_> = $parse;
                let value = parse(&text.value);
                if value.is_none() {
                    reader.refuse(&text, $fault, $help);
                }
                value
            },
            show: $show,
        }
    };
}

pub(crate) use checked;

/// A list of such texts.
pub(crate) struct Each<T>(pub(crate) Parsed<T>);

impl<T> Kind for Each<T> {
    type Value = Vec<T>;

    fn form(&self) -> Form {
        Form::Texts(self.0.visible)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Vec<T>> {
        let texts = reader.strings(entry)?;
        Some(
            texts
                .into_iter()
                .filter_map(|text| (self.0.parse)(reader, text))
                .collect(),
        )
    }

    fn show(&self, value: &Vec<T>) -> Json {
        value.iter().map(self.0.show).collect()
    }
}

/// A value that is absent by default.
pub(crate) struct Maybe<K>(pub(crate) K);

impl<K: Kind> Kind for Maybe<K> {
    type Value = Option<K::Value>;

    fn form(&self) -> Form {
        self.0.form()
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Self::Value> {
        self.0.read(reader, entry).map(Some)
    }

    fn show(&self, value: &Self::Value) -> Json {
        value
            .as_ref()
            .map_or(Json::Null, |value| self.0.show(value))
    }
}

/// A value, or null or `off` for none.
pub(crate) struct OrOff<K>(pub(crate) K);

impl<K: Kind> Kind for OrOff<K> {
    type Value = Option<K::Value>;
    const READS_NULL: bool = true;

    fn form(&self) -> Form {
        Form::OrOff(Box::new(self.0.form()))
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Self::Value> {
        let is_off = match &entry.value.value {
            // YAML 1.1 reads a bare `off` as false.
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text == "off",
            _ => false,
        };
        if is_off {
            Some(None)
        } else {
            self.0.read(reader, entry).map(Some)
        }
    }

    fn show(&self, value: &Self::Value) -> Json {
        value
            .as_ref()
            .map_or(Json::Null, |value| self.0.show(value))
    }
}

/// A mapping of further options.
pub(crate) struct Nested<S>(std::marker::PhantomData<S>);

impl<S> Nested<S> {
    pub(crate) const KIND: Self = Self(std::marker::PhantomData);
}

impl<S: Options> Kind for Nested<S> {
    type Value = S;

    fn form(&self) -> Form {
        Form::Section(S::SECTION)
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<S> {
        let fields = Fields::open(reader, S::SECTION, &quoted(&entry.key), &entry.value)?;
        Some(fields.read(reader))
    }

    fn show(&self, value: &S) -> Json {
        Json::Object(value.show())
    }
}
