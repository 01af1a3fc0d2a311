/** Export of a list as CSV or JSON, page by page. */

export type ExportFormat = "csv" | "json";
export type Cell = string | number | null | undefined;

/** Maximum number of exported rows. */
export const EXPORT_MAX = 100_000;
/** Rows per request. */
export const EXPORT_PAGE = 1_000;

interface Page<Row> {
  items: readonly Row[];
  next_cursor?: string | null;
}

export interface ExportSource<Row> {
  read: (cursor: string | undefined, signal: AbortSignal) => Promise<Page<Row>>;
  /** Columns of the CSV file, named as the fields of the API. */
  columns: ReadonlyArray<[name: string, value: (row: Row) => Cell]>;
}

export interface Exported {
  blob: Blob;
  rows: number;
  /** Whether the list has further rows. */
  isCut: boolean;
}

/** Spreadsheets read a file with this mark as UTF-8. */
const BYTE_ORDER_MARK = "\uFEFF";

/** Reads a list page by page and returns it as a file; throws if the user stops it. */
export async function exportList<Row>(
  { read, columns }: ExportSource<Row>,
  format: ExportFormat,
  onProgress: (rows: number) => void,
  signal: AbortSignal,
  max = EXPORT_MAX,
): Promise<Exported> {
  const isCsv = format === "csv";
  // Each page becomes text at once: its objects are not kept.
  const parts = [isCsv ? BYTE_ORDER_MARK + csvRow(columns.map(([name]) => name)) : "["];
  let rows = 0;
  let cursor: string | undefined;
  do {
    const page = await read(cursor, signal);
    signal.throwIfAborted();
    const items = page.items.slice(0, max - rows);
    for (const item of items) {
      const value = isCsv ? csvRow(columns.map(([, cell]) => cell(item))) : `\n${JSON.stringify(item)}`;
      parts.push(isCsv || rows === 0 ? value : `,${value}`);
      rows += 1;
    }
    cursor = page.next_cursor ?? undefined;
    if (items.length < page.items.length) cursor ??= "";
    onProgress(rows);
  } while (cursor && rows < max);
  if (!isCsv) parts.push("\n]\n");
  const blob = new Blob(parts, { type: isCsv ? "text/csv;charset=utf-8" : "application/json" });
  return { blob, rows, isCut: cursor !== undefined };
}

export function csvRow(cells: readonly Cell[]): string {
  return `${cells.map(csvCell).join(",")}\r\n`;
}

/** Returns a cell of a CSV file. A spreadsheet would run a text that begins like a formula, so it is escaped. */
export function csvCell(value: Cell): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Returns labels as one cell. */
export function labelsCell(labels: Record<string, string> | undefined): string {
  return Object.entries(labels ?? {})
    .map(([key, value]) => (value === "" ? key : `${key}=${value}`))
    .join(" ");
}
