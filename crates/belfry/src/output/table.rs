//! Tables, detailed views and lines of streams.
//!
//! An object implements [`Row`] (columns and cells) and possibly [`Detail`] (labels and values), in the
//! module of its kind. [`rows`] sizes each column to its widest cell. [`line`] formats one row of a stream,
//! whose later rows are unknown, so its columns have the fixed widths of [`Column`]. [`detail`] formats one
//! object. Columns are separated by two spaces.
//!
//! Without `-o wide`, a table on a terminal is made as narrow as the terminal ([`fit`]): optional columns are left out
//! ([`Column::optional`]), then long texts are cut ([`Column::cut`]). In a pipe or a file, and with `-o wide`, a table
//! is as wide as its texts. A detailed view is never cut.
//!
//! # Invariants
//! - Each text passes [`Cell::new`], which escapes control characters.
//! - A row has one cell for each column, in the order of the columns.
//! - An ID, and a name that commands accept as an argument, is shown in full or not at all.

use comfy_table::{Cell as TableCell, Color, ContentArrangement, Table, presets};
use serde::Serialize;
use unicode_width::UnicodeWidthStr as _;

use super::OutputOptions;
use super::text::{cut, escape};

/// Number of spaces between two columns.
const GAP: usize = 2;

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
    /// Whether the text is never cut.
    whole: bool,
}

impl Cell {
    /// Creates a cell. Control characters in the text are escaped.
    pub(crate) fn new(text: impl AsRef<str>, tone: Tone) -> Self {
        Self { text: escape(text.as_ref()), tone, whole: false }
    }

    /// Creates the cell of an ID in a column whose other texts may be cut.
    pub(crate) fn whole(text: impl AsRef<str>) -> Self {
        Self { whole: true, ..Self::new(text, Tone::Plain) }
    }

    pub(crate) fn tone(&self) -> Tone {
        self.tone
    }

    /// Creates the cell of a missing value: `-`.
    pub(crate) fn none() -> Self {
        Self { text: "-".into(), tone: Tone::Dim, whole: false }
    }

    /// Returns the width on a terminal: a Chinese character takes two columns.
    fn width(&self) -> usize {
        self.text.width()
    }

    fn cut(&mut self, width: usize) {
        self.text = cut(&self.text, width);
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
    /// Width to which the texts may be cut; `None` for texts that are never cut.
    cut: Option<usize>,
    /// Order in which the columns of a narrow table are left out: the highest number first. 0 is always shown.
    optional: u8,
}

impl Column {
    /// Allows to cut the texts to `width`, where the terminal is too narrow.
    pub(crate) const fn cut(mut self, width: usize) -> Self {
        self.cut = Some(width);
        self
    }

    /// Allows to leave out the column, where the terminal is too narrow. The column of a table with the highest
    /// `order` is left out first.
    pub(crate) const fn optional(mut self, order: u8) -> Self {
        self.optional = order;
        self
    }

    /// Returns the width to which a column with texts up to the width `natural` may be cut.
    fn minimum(&self, natural: usize) -> usize {
        self.cut.map_or(natural, |cut| natural.min(cut.max(self.title.width())))
    }
}

/// Creates a column that is always shown, except on a narrow terminal if it is [`Column::optional`].
pub(crate) const fn column(title: &'static str, width: usize) -> Column {
    Column { title, wide: false, width, cut: None, optional: 0 }
}

/// Creates a column that is shown with `-o wide` only.
pub(crate) const fn wide(title: &'static str, width: usize) -> Column {
    Column { wide: true, ..column(title, width) }
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
    let mut lines: Vec<Vec<Cell>> = items.iter().map(|item| shown_cells(look, item)).collect();
    let columns: Vec<&Column> = shown(look, T::COLUMNS).collect();
    let widths = match look.width.filter(|_| !look.wide()) {
        Some(width) => {
            let texts: Vec<_> =
                columns.iter().enumerate().map(|(i, column)| measure(column, &lines, i)).collect();
            fit(&columns, &texts, width)
        }
        None => vec![Some(usize::MAX); columns.len()],
    };
    let mut table = plain_table(look);
    table.set_header(kept(&widths, columns).map(|(column, _)| TableCell::new(column.title)));
    for cells in lines.drain(..) {
        let cells = kept(&widths, cells).map(|(mut cell, width)| {
            cell.cut(width);
            styled(look, cell)
        });
        table.add_row(cells);
    }
    finish(&mut table)
}

/// Formats one row of a stream with fixed column widths. With `first`, the headings come first.
pub(crate) fn line<T: Row>(look: &OutputOptions, item: &T, first: bool) -> String {
    let columns: Vec<&Column> = shown(look, T::COLUMNS).collect();
    let limit = look.width.filter(|_| !look.wide());
    let widths = match limit {
        Some(limit) => {
            let texts: Vec<_> = columns
                .iter()
                .map(|c| TextWidths { natural: c.width, minimum: c.minimum(c.width) })
                .collect();
            fit(&columns, &texts, limit)
        }
        None => columns.iter().map(|column| Some(column.width)).collect(),
    };
    let mut text = String::new();
    if first {
        let heads = kept(&widths, columns.clone())
            .map(|(column, width)| (column.title.to_owned(), column.title, width));
        text.push_str(&padded(heads));
    }
    let used: usize = widths.iter().flatten().map(|width| width + GAP).sum();
    let last = widths.iter().rposition(Option::is_some);
    let cells = kept(&widths, shown_cells(look, item).into_iter().zip(columns).enumerate().collect());
    let cells: Vec<_> = cells
        .map(|((i, (mut cell, column)), width)| {
            if let (Some(limit), Some(_)) = (limit, column.cut) {
                // The last column has the rest of the line.
                let rest = if Some(i) == last { (limit + GAP).saturating_sub(used) } else { 0 };
                cell.cut(width + rest);
            }
            (colored(look, &cell), cell.text, width)
        })
        .collect();
    text.push_str(&padded(cells.iter().map(|(shown, text, width)| (shown.clone(), text.as_str(), *width))));
    text
}

/// Joins texts to a line; each is padded to its width. `text` is the shown text without colors.
fn padded<'a>(cells: impl Iterator<Item = (String, &'a str, usize)>) -> String {
    let cells = cells.map(|(shown, text, width)| shown + &" ".repeat(width.saturating_sub(text.width())));
    cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned() + "\n"
}

/// Width of the texts of a column, and the width to which they may be cut.
#[derive(Debug, Clone, Copy)]
struct TextWidths {
    natural: usize,
    minimum: usize,
}

/// Measures the column with the index `i`.
fn measure(column: &Column, lines: &[Vec<Cell>], i: usize) -> TextWidths {
    let cells = || lines.iter().map(|cells| &cells[i]);
    let natural = cells().map(Cell::width).max().unwrap_or_default().max(column.title.width());
    let whole = cells().filter(|cell| cell.whole).map(Cell::width).max().unwrap_or_default();
    TextWidths { natural, minimum: column.minimum(natural).max(whole) }
}

/// Fits columns into the width of a terminal. Returns the width of each column, and `None` for a column that is left
/// out.
///
/// A column is left out only if the others do not fit with all texts cut. The remaining space is shared so that the
/// longest texts are cut most. If the columns that are always shown do not fit, the table is wider than the terminal.
fn fit(columns: &[&Column], texts: &[TextWidths], limit: usize) -> Vec<Option<usize>> {
    let total = |widths: &[Option<usize>]| {
        widths.iter().flatten().map(|width| width + GAP).sum::<usize>().saturating_sub(GAP)
    };
    let mut minimums: Vec<_> = texts.iter().map(|text| Some(text.minimum)).collect();
    while total(&minimums) > limit {
        let optional = (0..columns.len()).filter(|i| minimums[*i].is_some() && columns[*i].optional > 0);
        let Some(first) = optional.max_by_key(|i| columns[*i].optional) else { break };
        minimums[first] = None;
    }
    let mut widths: Vec<_> =
        texts.iter().zip(&minimums).map(|(text, minimum)| minimum.map(|_| text.natural)).collect();
    while total(&widths) > limit {
        let can_shrink = (0..columns.len()).filter(|i| widths[*i] > minimums[*i]);
        let Some(widest) = can_shrink.max_by_key(|i| widths[*i]) else { break };
        widths[widest] = widths[widest].map(|width| width - 1);
    }
    widths
}

/// Returns the items of the columns that are not left out, with the widths of these columns.
fn kept<T>(widths: &[Option<usize>], items: Vec<T>) -> impl Iterator<Item = (T, usize)> {
    items.into_iter().zip(widths).filter_map(|(item, width)| Some((item, (*width)?)))
}

fn shown_cells<T: Row>(look: &OutputOptions, item: &T) -> Vec<Cell> {
    let cells = item.cells(look);
    debug_assert_eq!(cells.len(), T::COLUMNS.len());
    cells.into_iter().zip(T::COLUMNS).filter(|(_, c)| look.wide() || !c.wide).map(|(cell, _)| cell).collect()
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

/// Returns the width of a table on a narrow terminal, for texts as wide as the columns of a stream.
#[cfg(test)]
pub(crate) fn narrowest<T: Row>() -> usize {
    let columns = T::COLUMNS.iter().filter(|column| !column.wide && column.optional == 0);
    columns.map(|column| column.minimum(column.width) + GAP).sum::<usize>() - GAP
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;

    #[derive(Serialize)]
    struct Line(&'static str, &'static str, &'static str, &'static str);

    impl Row for Line {
        const COLUMNS: &'static [Column] = &[
            column("ID", 8),
            column("NAME", 10).cut(6),
            column("ATTEMPTS", 8).optional(2),
            column("MESSAGE", 20).cut(9).optional(1),
            wide("NOTE", 4),
        ];

        fn cells(&self, _: &OutputOptions) -> Vec<Cell> {
            vec![self.0.into(), self.1.into(), self.2.into(), self.3.into(), "note".into()]
        }

        fn name(&self) -> String {
            self.0.to_owned()
        }
    }

    const LINES: [Line; 2] =
        [Line("job_0001", "钟楼夜间报表", "1", "exited with code 3"), Line("job_0002", "short", "12", "-")];

    fn look(width: Option<usize>, format: Format) -> OutputOptions {
        OutputOptions { format, color: false, now: model::Timestamp::default(), width }
    }

    fn table(width: usize) -> String {
        let text = rows(&look(Some(width), Format::Table), &LINES);
        for line in text.lines() {
            assert!(line.width() <= width, "`{line}` is wider than {width}");
        }
        text
    }

    #[test]
    fn a_table_that_fits_the_terminal_is_whole() {
        insta::assert_snapshot!(table(52), @r"
        ID        NAME          ATTEMPTS  MESSAGE
        job_0001  钟楼夜间报表  1         exited with code 3
        job_0002  short         12        -
        ");
    }

    #[test]
    fn texts_are_cut_before_a_column_is_left_out() {
        insta::assert_snapshot!(table(40), @r"
        ID        NAME       ATTEMPTS  MESSAGE
        job_0001  钟楼夜间…  1         exited w…
        job_0002  short      12        -
        ");
    }

    #[test]
    fn columns_are_left_out_in_their_order_and_the_others_use_the_space() {
        insta::assert_snapshot!(table(34), @r"
        ID        NAME         MESSAGE
        job_0001  钟楼夜间报…  exited wit…
        job_0002  short        -
        ");
        insta::assert_snapshot!(table(22), @r"
        ID        NAME
        job_0001  钟楼夜间报表
        job_0002  short
        ");
        insta::assert_snapshot!(table(16), @r"
        ID        NAME
        job_0001  钟楼…
        job_0002  short
        ");
    }

    /// An ID in a terminal that is too narrow for it can still be copied.
    #[test]
    fn an_id_is_never_cut() {
        let text = rows(&look(Some(5), Format::Table), &LINES);
        assert!(text.contains("job_0001"), "{text}");
    }

    #[test]
    fn a_pipe_and_the_wide_format_have_all_columns_in_full() {
        assert!(rows(&look(None, Format::Table), &LINES).contains("exited with code 3"));
        let all = rows(&look(Some(10), Format::Wide), &LINES);
        assert!(all.contains("exited with code 3") && all.contains("NOTE"), "{all}");
    }

    #[test]
    fn a_stream_has_equal_columns_and_fits_the_terminal() {
        let stream = |width| {
            let lines = LINES.iter().enumerate();
            lines.map(|(i, item)| line(&look(width, Format::Table), item, i == 0)).collect::<String>()
        };
        insta::assert_snapshot!(stream(Some(36)), @r"
        ID        NAME        MESSAGE
        job_0001  钟楼夜间…   exited with c…
        job_0002  short       -
        ");
        insta::assert_snapshot!(stream(None), @r"
        ID        NAME        ATTEMPTS  MESSAGE
        job_0001  钟楼夜间报表  1         exited with code 3
        job_0002  short       12        -
        ");
    }

    #[test]
    fn a_cell_with_an_id_keeps_its_width_in_a_column_of_names() {
        let cut = column("NAME", 10).cut(6);
        let widths = |cells: Vec<Cell>| measure(&cut, &[cells], 0);
        assert_eq!(widths(vec!["a long name".into()]).minimum, 6);
        assert_eq!(widths(vec![Cell::whole("wkr_000001")]).minimum, 10);
    }
}
