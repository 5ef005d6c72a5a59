//! How settings are declared: once, in [`settings!`].

use serde_json::Value as Json;

use super::invalid::Invalid;
use super::kind::Kind;
use super::report::Report;
use super::section::{Section, Sourced};
use super::tree::{Node, Origin};

/// A setting, as it is declared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    /// What it means: the sentences of the reference.
    pub(super) meaning: &'static str,
    /// What holds if it is not set, as a variable would have it.
    pub(super) default: Option<&'static str>,
    /// The full name of the setting that holds if this one is not set.
    pub(super) like: Option<&'static str>,
    /// Another value, as a variable would have it.
    pub(super) example: &'static str,
    /// Whether a reload applies it; else it needs a restart. Routes are always reloaded.
    pub(super) live: bool,
    pub(super) shape: Shape,
}

/// What a setting is made of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// One value, or a list of them.
    Value(fn() -> Json),
    /// Settings of its own.
    Table(&'static [Setting]),
    /// A list of tables: `[[route]]`.
    Tables(&'static [Setting]),
    /// Tables with names of the user's choice: `[upstreams.payments]`.
    Named(&'static [Setting]),
    /// No setting itself: settings of the same table that are declared somewhere else.
    Group(&'static [Setting]),
}

impl Setting {
    /// A table, or a group.
    pub(super) const fn of(name: &'static str, meaning: &'static str, shape: Shape) -> Self {
        Self { name, meaning, default: None, like: None, example: "", live: false, shape }
    }
}

/// What one source says about the settings of a table; nothing where it says nothing.
pub(super) trait Layer: Sized {
    /// The settings.
    const SETTINGS: &'static [Setting];

    /// Reads a table. What is wrong in it is reported.
    fn read(table: &Section<'_>, report: &mut Report) -> Self;

    /// The declared defaults.
    fn defaults(report: &mut Report) -> Self;

    /// Lays this over another layer.
    fn over(self, below: &Self) -> Self;

    /// The names of the settings, or tables of them, that differ and need a restart.
    fn restarts(&self, new: &Self) -> Vec<&'static str>;

    /// Reads a table and completes it with the declared defaults.
    fn complete(table: &Section<'_>, report: &mut Report) -> Self {
        Self::read(table, report).over(&Self::defaults(report))
    }
}

/// Reads a declared default, which is right: a test reads all of them.
pub(super) fn default<T>(
    kind: Kind<T>,
    text: Option<&str>,
    report: &mut Report,
) -> Option<Sourced<T>> {
    let origin = Origin::Default;
    let value = match text.map(|text| kind.read(&Node::loose(text, origin.clone()))) {
        None => kind.absent,
        Some(read) => {
            let failed = |invalid: &Invalid| report.at(&origin, invalid.message.clone(), None);
            read.inspect_err(failed).ok()
        }
    };
    value.map(|value| Sourced { value, origin })
}

/// Declares the settings of a table. Each has a field, its type, its kind with the limits, perhaps
/// a default, and an example; the documentation of the field is its row in the reference:
///
/// ```text
/// /// How long the rest lasts.
/// open_for: Duration = TIMEOUT, default "5s", example "30s";
/// ```
///
/// - `as "NAME"` behind the field is the name in the file, where it differs.
/// - `like "NAME"` in place of a default names the setting that holds instead; the code that uses
///   the layer fills it in.
/// - `live` behind the example says that a reload applies it.
///
/// `layer NAME { … }` makes a [`Layer`]. `, check FUNCTION` finds what a table must not say
/// together, and `, inherit FUNCTION` changes what this layer takes from the one below.
/// `pub struct NAME from LAYER { … }` makes the complete settings too, with a value for each, and
/// `with { … }` gives them fields that are put together by hand.
macro_rules! settings {
    (@some) => { None };
    (@some $text:literal) => { Some($text) };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    (@live) => { false };
    (@live live) => { true };
    (
        $(#[$about:meta])*
        layer $Layer:ident $(, check $check:ident)? $(, inherit $inherit:ident)? {
            $(
                $(#[doc = $meaning:literal])+
                $field:ident $(as $name:literal)? : $T:ty = $kind:expr
                $(, default $default:literal)? $(, like $like:literal)?
                , example $example:literal $(, $live:ident)? ;
            )+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub(crate) struct $Layer {
            $(pub(crate) $field: Option<$crate::section::Sourced<$T>>,)+
        }

        impl $crate::declare::Layer for $Layer {
            const SETTINGS: &'static [$crate::declare::Setting] = &[$($crate::declare::Setting {
                name: settings!(@name $field $($name)?),
                meaning: concat!($($meaning),+),
                default: settings!(@some $($default)?),
                like: settings!(@some $($like)?),
                example: $example,
                live: settings!(@live $($live)?),
                shape: $crate::declare::Shape::Value(|| ($kind).schema()),
            }),+];

            fn read(
                table: &$crate::section::Section<'_>,
                report: &mut $crate::report::Report,
            ) -> Self {
                let layer = Self {
                    $($field: table.get(settings!(@name $field $($name)?), report, |node| {
                        ($kind).read(node)
                    }),)+
                };
                $($check(&layer, report);)?
                layer
            }

            fn defaults(report: &mut $crate::report::Report) -> Self {
                Self {
                    $($field: $crate::declare::default(
                        $kind,
                        settings!(@some $($default)?),
                        report,
                    ),)+
                }
            }

            fn over(self, below: &Self) -> Self {
                let (own, below) = (self, below.clone());
                $(let (own, below) = $inherit(own, below);)?
                Self { $($field: own.$field.or(below.$field),)+ }
            }

            fn restarts(&self, new: &Self) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(if !settings!(@live $($live)?) && self.$field != new.$field {
                    names.push(settings!(@name $field $($name)?));
                })+
                names
            }
        }
    };
    (
        $(#[$about:meta])*
        pub struct $Settings:ident from $Layer:ident $(, inherit $inherit:ident)?
        $(with { $($(#[$made_about:meta])* $made:ident: $Made:ty,)+ })?
        {
            $(
                $(#[doc = $meaning:literal])+
                $field:ident $(as $name:literal)? : $T:ty = $kind:expr
                $(, default $default:literal)? $(, like $like:literal)?
                , example $example:literal $(, $live:ident)? ;
            )+
        }
    ) => {
        settings! {
            /// What one source says of them.
            layer $Layer $(, inherit $inherit)? {
                $(
                    $(#[doc = $meaning])+
                    $field $(as $name)? : $T = $kind
                    $(, default $default)? $(, like $like)?
                    , example $example $(, $live)? ;
                )+
            }
        }

        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Settings {
            $($($(#[$made_about])* pub $made: $Made,)+)?
            $($(#[doc = $meaning])+ pub $field: $T,)+
        }

        impl $Settings {
            /// Takes the values of a complete layer.
            #[allow(clippy::too_many_arguments, reason = "one for each field made by hand")]
            pub(crate) fn of(layer: $Layer $($(, $made: $Made)+)?) -> Option<Self> {
                Some(Self { $($($made,)+)? $($field: layer.$field?.value,)+ })
            }
        }
    };
}

/// Joins layers into one: those of a `table NAME` inside this table, and a `group` of this table's
/// own settings that is declared somewhere else. `, check FUNCTION` is as in [`settings!`].
macro_rules! tables {
    (@setting group $field:ident $Layer:ident $meaning:expr) => {
        $crate::declare::Setting::of(
            "",
            $meaning,
            $crate::declare::Shape::Group(<$Layer as $crate::declare::Layer>::SETTINGS),
        )
    };
    (@setting table $field:ident $Layer:ident $meaning:expr) => {
        $crate::declare::Setting::of(
            stringify!($field),
            $meaning,
            $crate::declare::Shape::Table(<$Layer as $crate::declare::Layer>::SETTINGS),
        )
    };
    (@section group $table:ident $field:ident) => { $table };
    (@section table $table:ident $field:ident) => { &$table.inside(stringify!($field)) };
    (@names group $field:ident $names:expr) => { $names };
    (@names table $field:ident $names:expr) => {
        $names.first().map(|_| stringify!($field))
    };
    (
        $(#[$about:meta])*
        $Tables:ident $(, check $check:ident)? {
            $($(#[doc = $meaning:literal])+ $place:ident $field:ident: $Layer:ident;)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub(crate) struct $Tables {
            $(pub(crate) $field: $Layer,)+
        }

        impl $crate::declare::Layer for $Tables {
            const SETTINGS: &'static [$crate::declare::Setting] =
                &[$(tables!(@setting $place $field $Layer concat!($($meaning),+))),+];

            fn read(
                table: &$crate::section::Section<'_>,
                report: &mut $crate::report::Report,
            ) -> Self {
                let layer = Self {
                    $($field: $Layer::read(tables!(@section $place table $field), report),)+
                };
                $($check(&layer, report);)?
                layer
            }

            fn defaults(report: &mut $crate::report::Report) -> Self {
                Self { $($field: $Layer::defaults(report),)+ }
            }

            fn over(self, below: &Self) -> Self {
                Self { $($field: self.$field.over(&below.$field),)+ }
            }

            fn restarts(&self, new: &Self) -> Vec<&'static str> {
                let mut names = Vec::new();
                $({
                    let found = self.$field.restarts(&new.$field);
                    names.extend(tables!(@names $place $field found));
                })+
                names
            }
        }
    };
}

pub(super) use {settings, tables};
