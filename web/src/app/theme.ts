/** Mantine theme based on our design tokens (`tokens.css`). */

import {
  ActionIcon,
  Button,
  createTheme,
  defaultVariantColorsResolver,
  Menu,
  Modal,
  type MantineColorsTuple,
  SegmentedControl,
  Tooltip,
} from "@mantine/core";

const ink: MantineColorsTuple = [
  "#f4f4f2",
  "#eeeeec",
  "#dad9d6",
  "#bcbbb5",
  "#8d8d86",
  "#63635e",
  "#4b4a45",
  "#33322e",
  "#211f1d",
  "#111110",
];

const dark: MantineColorsTuple = [
  "#eeeeec",
  "#b5b3ad",
  "#949089",
  "#6f6d66",
  "#3b3a37",
  "#2a2a28",
  "#1d1d1b",
  "#111110",
  "#0d0d0c",
  "#080808",
];

const gray: MantineColorsTuple = [
  "#faf9f7",
  "#f4f3f0",
  "#ebe9e4",
  "#dedcd5",
  "#cdcac2",
  "#a9a69d",
  "#807d75",
  "#57554f",
  "#3d3b36",
  "#1c1b19",
];

const red: MantineColorsTuple = [
  "#fff5f5",
  "#ffe5e5",
  "#fdbdbe",
  "#f4a9aa",
  "#eb8e90",
  "#e5484d",
  "#ce2c31",
  "#c0262c",
  "#a51d23",
  "#641723",
];

export const theme = createTheme({
  primaryColor: "ink",
  primaryShade: { light: 8, dark: 1 },
  autoContrast: true,
  colors: { ink, dark, gray, red },
  // Text on the primary colour uses the background colour: dark on light in the dark theme.
  variantColorResolver: (input) => {
    const resolved = defaultVariantColorsResolver(input);
    const onInk = input.variant === "filled" && (input.color ?? "ink") === "ink";
    return onInk ? { ...resolved, color: "var(--bg)" } : resolved;
  },
  black: "#1c1b19",
  fontFamily: "var(--font-sans)",
  fontFamilyMonospace: "var(--font-mono)",
  fontSizes: { xs: "0.75rem", sm: "0.8125rem", md: "0.875rem", lg: "1rem", xl: "1.25rem" },
  defaultRadius: 6,
  cursorType: "pointer",
  respectReducedMotion: true,
  components: {
    Button: Button.extend({ defaultProps: { size: "xs" } }),
    ActionIcon: ActionIcon.extend({ defaultProps: { size: 28, variant: "subtle", color: "gray" } }),
    Tooltip: Tooltip.extend({ defaultProps: { openDelay: 350, withArrow: true, fz: "xs", multiline: true } }),
    Modal: Modal.extend({
      defaultProps: { centered: true, overlayProps: { backgroundOpacity: 0.4 }, radius: 10 },
    }),
    Menu: Menu.extend({ defaultProps: { shadow: "md", position: "bottom-end" } }),
    SegmentedControl: SegmentedControl.extend({ defaultProps: { size: "xs" } }),
    TextInput: { defaultProps: { size: "xs" } },
    Textarea: { defaultProps: { size: "xs" } },
    NumberInput: { defaultProps: { size: "xs" } },
    Select: { defaultProps: { size: "xs" } },
    Autocomplete: { defaultProps: { size: "xs" } },
    TagsInput: { defaultProps: { size: "xs" } },
    Checkbox: { defaultProps: { size: "xs" } },
    Switch: { defaultProps: { size: "xs" } },
    PasswordInput: { defaultProps: { size: "xs" } },
  },
});
