/** Columns of a table that fit into it. */

import { type CSSProperties, type RefObject, useLayoutEffect, useState } from "react";

import { type Column, gridTracks, visibleColumns } from "../lib/columns";
import { useNarrow } from "../lib/narrow";
import { usePreferences } from "../lib/preferences";

interface Layout<Name extends string> {
  /** Key of the table. */
  table: string;
  columns: ReadonlyArray<Column<Name>>;
  /** Space between columns. */
  gap: number;
  /** Width of the table that no column has: its padding, and a column of checkboxes. */
  reserved: number;
}

export interface Columns<Name extends string> {
  has: (name: Name) => boolean;
  shown: ReadonlyArray<Column<Name>>;
  /** Style of the table; its rows use the variable `--columns`. */
  style: CSSProperties;
}

/** Returns the columns of a table to show, by default or as the user chose. A narrow page has a layout of its own, so that all fit. */
export function useColumns<Name extends string>(
  element: RefObject<HTMLElement | null>,
  { table, columns, gap, reserved }: Layout<Name>,
  isDefault: (name: Name) => boolean,
): Columns<Name> {
  const choice = usePreferences().columns[table] ?? {};
  const width = useWidth(element);
  const isNarrow = useNarrow();
  const space = isNarrow ? Infinity : width - reserved;
  const shown = visibleColumns(columns, isDefault, choice, space, gap);
  return {
    has: (name) => shown.some((column) => column.name === name),
    shown,
    style: { "--columns": gridTracks(shown) } as CSSProperties,
  };
}

/** Returns the width of an element, once it is known. */
function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(Infinity);
  useLayoutEffect(() => {
    const box = element.current;
    if (!box) return;
    setWidth(box.clientWidth);
    const observer = new ResizeObserver(() => setWidth(box.clientWidth));
    observer.observe(box);
    return () => observer.disconnect();
  }, [element]);
  return width;
}
