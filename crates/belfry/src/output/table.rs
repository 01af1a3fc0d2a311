//! Tables, detailed views and lines of streams.
//!
//! An object implements [`Row`] (columns and cells) and possibly [`Detail`] (labels and values), in the
//! module of its kind. [`rows`] sizes each column to its widest cell. [`line`] formats one row of a stream,
//! whose later rows are unknown, so its columns have the fixed widths of [`Column`]. [`detail`] formats one
//! object. Columns are separated by two spaces, and no text is cut to the width of the terminal.
//!
//! # Invariants
//! - Each text passes [`Cell::new`], which escapes control characters.
//! - A row has one cell for each column, in the order of the columns.

use comfy_table::{Cell as TableCell, Color, ContentArrangement, Table, presets};
use serde::Serialize;

use super::OutputOptions;
use super::text::escape;

/// Meaning of a value, shown as a color. The text of the cell must express it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Bad,
    Busy,
    Waiting,
    Dim,
}

/// A value in a table.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Creates a cell. Control characters in the text are escaped.
    pub(crate) fn new(text: impl AsRef<str>, tone: Tone) -> Self {
        Self { text: escape(text.as_ref()), tone }
    }

    pub(crate) fn tone(&self) -> Tone {
        self.tone
    }

    /// Creates the cell of a missing value: `-`.
    pub(crate) fn none() -> Self {
        Self { text: "-".into(), tone: Tone::Dim }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(text, Tone::Plain)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text, Tone::Plain)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or_else(Self::none, Into::into)
    }
}

/// Column of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    /// Heading, in capital letters.
    pub(crate) title: &'static str,
    /// Whether the column is shown with `-o wide` only.
    pub(crate) wide: bool,
    /// Width in a stream, in characters; at least that of the heading.
    pub(crate) width: usize,
}

/// Creates a column that is always shown.
pub(crate) const fn column(title: &'static str, width: usize) -> Column {
    Column { title, wide: false, width }
}

/// Creates a column that is shown with `-o wide` only.
pub(crate) const fn wide(title: &'static str, width: usize) -> Column {
    Column { title, wide: true, width }
}

/// Object that can be a row of a table.
pub(crate) trait Row: Serialize {
    /// Columns, including those for `-o wide`.
    const COLUMNS: &'static [Column];

    /// Returns one cell for each of [`Row::COLUMNS`], in their order.
    fn cells(&self, look: &OutputOptions) -> Vec<Cell>;

    /// Returns the id or the name, for `-o name`.
    fn name(&self) -> String;
}

/// Object that has a detailed view.
pub(crate) trait Detail: Row {
    /// Returns the lines of the detailed view: label and value.
    fn detail(&self, look: &OutputOptions) -> Vec<(&'static str, Cell)>;

    /// Returns the text below these lines. The implementation must escape control characters.
    fn appendix(&self, _look: &OutputOptions) -> String {
        String::new()
    }
}

/// Formats a table: the headings, then all rows.
pub(crate) fn rows<T: Row>(look: &OutputOptions, items: &[T]) -> String {
    let mut table = plain_table(look);
    table.set_header(shown(look, T::COLUMNS).map(|c| TableCell::new(c.title)));
    for item in items {
        let cells = item.cells(look);
        debug_assert_eq!(cells.len(), T::COLUMNS.len());
        let cells = cells.into_iter().zip(T::COLUMNS).filter(|(_, c)| look.wide() || !c.wide);
        table.add_row(cells.map(|(cell, _)| styled(look, cell)));
    }
    finish(&mut table)
}

/// Formats one row of a stream with fixed column widths. With `first`, the headings come first.
pub(crate) fn line<T: Row>(look: &OutputOptions, item: &T, first: bool) -> String {
    let mut text = String::new();
    if first {
        let heads = shown(look, T::COLUMNS).map(|c| format!("{:<width$}", c.title, width = c.width));
        text.push_str(heads.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    let cells = item.cells(look).into_iter().zip(T::COLUMNS).filter(|(_, c)| look.wide() || !c.wide);
    let cells = cells.map(|(cell, column)| {
        let padding = " ".repeat(column.width.saturating_sub(cell.text.chars().count()));
        format!("{}{padding}", colored(look, &cell))
    });
    text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
    text.push('\n');
    text
}

/// Formats a detailed view: one label and value per line, then [`Detail::appendix`].
pub(crate) fn detail<T: Detail>(look: &OutputOptions, item: &T) -> String {
    let mut table = plain_table(look);
    for (key, cell) in item.detail(look) {
        table.add_row([TableCell::new(format!("{key}:")), styled(look, cell)]);
    }
    finish(&mut table) + &item.appendix(look)
}

fn shown<'a>(
    look: &'a OutputOptions,
    columns: &'static [Column],
) -> impl Iterator<Item = &'static Column> + use<'a> {
    columns.iter().filter(|c| look.wide() || !c.wide)
}

fn plain_table(look: &OutputOptions) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if look.color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
}

fn finish(table: &mut Table) -> String {
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn styled(look: &OutputOptions, cell: Cell) -> TableCell {
    let color = match cell.tone {
        _ if !look.color => None,
        Tone::Plain => None,
        Tone::Good => Some(Color::Green),
        Tone::Bad => Some(Color::Red),
        Tone::Busy => Some(Color::Cyan),
        Tone::Waiting => Some(Color::Yellow),
        Tone::Dim => Some(Color::DarkGrey),
    };
    let shown = TableCell::new(cell.text);
    match color {
        Some(color) => shown.fg(color),
        None => shown,
    }
}

fn colored(look: &OutputOptions, cell: &Cell) -> String {
    let code = match cell.tone {
        _ if !look.color => return cell.text.clone(),
        Tone::Plain => return cell.text.clone(),
        Tone::Good => 32,
        Tone::Bad => 31,
        Tone::Busy => 36,
        Tone::Waiting => 33,
        Tone::Dim => 90,
    };
    format!("\x1b[{code}m{}\x1b[0m", cell.text)
}
