//! Reading options into structs. [`options!`] turns one definition of each option into a struct
//! field with documentation and default, a parser with range and messages, and a
//! [`Definition`](crate::definition::Definition).

pub(crate) mod fields;
pub(crate) mod kind;
pub(crate) mod map;
pub(crate) mod reader;
pub(crate) mod several;
pub(crate) mod substitute;

use serde_json::{Map, Value};

use crate::definition::Section;
use crate::syntax::Entry;
pub(crate) use fields::Fields;
pub(crate) use kind::{
    Choice, Each, Flag, Kind, LONG_TIME, Maybe, Nested, OrOff, Parsed, Range, TIME, checked,
    choice, count, size, time,
};
pub(crate) use map::{JsonText, NameMap};
pub(crate) use reader::{Reader, Text, suggest};
pub(crate) use several::{AllOrEach, OneOrMany, Sections};

/// A struct whose fields are the options of a section.
pub(crate) trait Options: Default + 'static {
    const SECTION: &'static Section;
    const FIELDS: &'static [Field<Self>];

    /// The options in the file's notation, without secrets.
    fn show(&self) -> Map<String, Value> {
        Self::FIELDS
            .iter()
            .map(|field| (field.key.to_owned(), (field.show)(self)))
            .collect()
    }
}

/// The reading of one option into a struct, and the showing of it.
pub(crate) struct Field<S> {
    pub(crate) key: &'static str,
    pub(crate) read: fn(&mut Reader<'_>, &Entry, &mut S),
    pub(crate) show: fn(&S) -> Value,
}

/// Whether an option is marked as live.
pub(crate) const fn is_live(marks: &[&str]) -> bool {
    matches!(marks, [mark] if matches!(mark.as_bytes(), b"live"))
}

/// Defines the struct of a section. Documentation comments become rustdoc, the descriptions of the
/// JSON Schema, and the text of the reference and the sample file.
///
/// - `options`: `"key" => field: Type = default, kind;`. `[live]` after the key: the option takes
///   effect without a restart. `example "yaml"`: the sample file shows this text, not the default.
/// - `keys`: options without a field of their own, read by hand: `"key" => form;`
/// - `fields`: fields of the struct that are no options.
/// - `aliases`: other names of options, which other programs write: `"key" => form;`
/// - `foreign`: keys of other programs, accepted without effect.
macro_rules! options {
    (
        $(#[doc = $about:literal])+
        pub struct $name:ident: $section:literal, $location:literal;
        options { $(
            $(#[doc = $option_about:literal])+
            $key:literal $([$effect:ident])? => $field:ident: $type:ty = $default:expr, $kind:expr
                $(, example $example:literal)?;
        )* }
        $(keys { $(
            $(#[doc = $key_about:literal])+
            $bare_key:literal => $form:expr $(, example $key_example:literal)?;
        )* })?
        $(fields { $(
            $(#[doc = $plain_about:literal])+
            $plain:ident: $plain_type:ty = $plain_default:expr;
        )* })?
        $(aliases { $(
            $(#[doc = $alias_about:literal])+
            $alias:literal => $alias_form:expr;
        )* })?
        $(foreign { $($foreign:literal),* $(,)? })?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($($(#[doc = $plain_about])+ pub $plain: $plain_type,)*)?
            $($(#[doc = $option_about])+ #[doc = concat!(" `", $key, "`.")] pub $field: $type,)*
        }

        impl crate::option::Options for $name {
            const SECTION: &'static crate::definition::Section = &crate::definition::Section {
                name: $section,
                location: $location,
                about: concat!($($about),+).trim_ascii_start(),
                definitions: &[
                    $(crate::definition::Definition {
                        key: $key,
                        is_live: crate::option::is_live(&[$(stringify!($effect))?]),
                        about: concat!($($option_about),+).trim_ascii_start(),
                        form: || crate::option::kind::Kind::form(&$kind),
                        default: || {
                            let defaults = $name::default();
                            crate::option::kind::Kind::show(&$kind, &defaults.$field)
                        },
                        example: concat!("" $(, $example)?),
                    },)*
                    $($(crate::definition::Definition {
                        key: $bare_key,
                        is_live: true,
                        about: concat!($($key_about),+).trim_ascii_start(),
                        form: || $form,
                        default: || serde_json::Value::Null,
                        example: concat!("" $(, $key_example)?),
                    },)*)?
                ],
                aliases: &[$($(crate::definition::Definition {
                    key: $alias,
                    is_live: true,
                    about: concat!($($alias_about),+).trim_ascii_start(),
                    form: || $alias_form,
                    default: || serde_json::Value::Null,
                    example: "",
                },)*)?],
                foreign: &[$($($foreign),*)?],
            };
            const FIELDS: &'static [crate::option::Field<Self>] = &[
                $(crate::option::Field {
                    key: $key,
                    read: |reader, entry, options| {
                        crate::option::kind::read_into(&$kind, reader, entry, &mut options.$field);
                    },
                    show: |options| crate::option::kind::Kind::show(&$kind, &options.$field),
                },)*
            ];
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($($plain: $plain_default,)*)?
                    $($field: $default,)*
                }
            }
        }
    };
}
pub(crate) use options;
