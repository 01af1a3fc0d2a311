/** Completions for members of a spec, from the schemas in the OpenAPI document. */

import type { Completion } from "@codemirror/autocomplete";

interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  properties?: Record<string, Schema>;
  oneOf?: Schema[];
  items?: Schema;
  enum?: string[];
}

let schemas: Record<string, Schema> = {};

/** Loads the OpenAPI document once; on failure there are no completions, and the editor still works. */
export async function loadSchemas(): Promise<void> {
  if (Object.keys(schemas).length > 0) return;
  const response = await fetch("/openapi.json");
  if (!response.ok) return;
  const document = (await response.json()) as { components: { schemas: Record<string, Schema> } };
  schemas = document.components.schemas;
}

/** Resolves a schema to its variants, without references and lists. */
function resolveSchema(schema: Schema | undefined): Schema[] {
  if (!schema) return [];
  if (schema.$ref) return resolveSchema(schemas[schema.$ref.split("/").at(-1) ?? ""]);
  if (schema.oneOf) return schema.oneOf.flatMap(resolveSchema);
  if (schema.items) return resolveSchema(schema.items);
  return [schema];
}

/** Returns the parent keys of a line with this indentation, outermost first. */
export function pathAbove(lines: readonly string[], indent: number): string[] {
  const path: string[] = [];
  let limit = indent;
  for (let i = lines.length - 1; i >= 0 && limit > 0; i -= 1) {
    const [, spaces = "", key] = /^(\s*(?:- )?)"?([\w.-]+)"?\s*:/.exec(lines[i] ?? "") ?? [];
    if (!key || spaces.length >= limit) continue;
    path.unshift(key);
    limit = spaces.length;
  }
  return path;
}

/** Specs that users write. */
export type SpecName = "JobSpec" | "ScheduleSpec" | "CalendarSpec" | "WorkflowSpec" | "ServiceSpec";

export function completions(root: SpecName, lines: readonly string[], indent: number): Completion[] {
  let at: Schema[] = resolveSchema(schemas[root]);
  for (const key of pathAbove(lines, indent))
    at = at.flatMap((schema) => resolveSchema(schema.properties?.[key]));
  return at.flatMap((schema) =>
    Object.entries(schema.properties ?? {}).map(([key, member]) => ({
      label: key,
      apply: `${key}: `,
      detail: (member.description ?? resolveSchema(member)[0]?.description ?? "")
        .split("\n")[0]
        ?.slice(0, 80),
    })),
  );
}
