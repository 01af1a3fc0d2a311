/** Columns of a table: which are chosen, and which of them fit. */

export interface Column<Name extends string = string> {
  name: Name;
  /** Width in pixels; the minimum width of a column that grows. */
  width: number;
  grows?: boolean;
  /** Columns with a higher rank are hidden first if not all fit; rank 0 is never hidden. */
  rank: number;
}

/** Columns that a user has shown or hidden; the others are as by default. */
export type ColumnChoice = Readonly<Record<string, boolean>>;

/**
 * Returns the columns that are shown in a table of this width, where `isDefault` says which are shown unless the user
 * chose otherwise. Columns that the user has chosen are hidden last.
 */
export function visibleColumns<Name extends string>(
  columns: ReadonlyArray<Column<Name>>,
  isDefault: (name: Name) => boolean,
  choice: ColumnChoice,
  width: number,
  gap: number,
): Array<Column<Name>> {
  const rankOf = ({ name, rank }: Column<Name>) => (choice[name] ? rank / 1_000 : rank);
  let shown = columns.filter(({ name, rank }) => rank === 0 || (choice[name] ?? isDefault(name)));
  const total = () => shown.reduce((sum, column) => sum + column.width, gap * (shown.length - 1));
  while (total() > width) {
    const last = shown.reduce((a, b) => (rankOf(b) > rankOf(a) ? b : a));
    if (last.rank === 0) break;
    shown = shown.filter((column) => column !== last);
  }
  return shown;
}

/** Returns the tracks of a grid with these columns. */
export function gridTracks(columns: readonly Column[]): string {
  return columns.map(({ width, grows }) => (grows ? `minmax(${width}px, 1fr)` : `${width}px`)).join(" ");
}
