import reactHooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist", "e2e/report", "src/api/schema.d.ts", "scripts", "eslint.config.js"] },
  ...tseslint.configs.recommendedTypeChecked,
  { languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } } },
  {
    files: ["src/**/*.{ts,tsx}"],
    plugins: { "react-hooks": reactHooks },
    rules: {
      "react-hooks/rules-of-hooks": "error",
      "react-hooks/exhaustive-deps": "error",
      // Logs are shown as text nodes; nothing else writes markup either.
      "no-restricted-syntax": [
        "error",
        { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: "render text nodes" },
      ],
      "no-restricted-properties": [
        "error",
        { object: "crypto", property: "randomUUID", message: "use lib/randomId: pages over HTTP have none" },
        {
          object: "navigator",
          property: "clipboard",
          message: "use lib/clipboard: pages over HTTP have none",
        },
      ],
      "no-restricted-globals": ["error", { name: "EventSource", message: "use api/sse: it sends the token" }],
    },
  },
  {
    files: ["src/lib/randomId.ts", "src/lib/clipboard.ts"],
    rules: { "no-restricted-properties": "off" },
  },
  {
    rules: {
      "@typescript-eslint/no-misused-promises": ["error", { checksVoidReturn: { attributes: false } }],
      "@typescript-eslint/switch-exhaustiveness-check": "error",
      "no-console": "error",
    },
  },
);
