"""The style sheet of a report: light and dark as the reader's system is, colours as in the window."""

STYLE = """\
:root {
  --ground: #ffffff; --raised: #f3f4f6; --text: #16181d; --muted: #565c66; --edge: #c3c8d0; --grid: #e1e4e9;
  --info: #2b5c9e; --warning: #855800; --error: #b3261e; --link: #5a3fd0;
  --w: #0072b2; --g: #b87f00; --m: #00805d; --v: #b0588c; --nonfinite: #d55e00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #121316; --raised: #1b1d21; --text: #e8eaed; --muted: #a3a9b3; --edge: #454a53; --grid: #2c2f36;
    --info: #8ab8f5; --warning: #f0c04a; --error: #ff8a80; --link: #b3a4ff;
    --w: #56b4e9; --g: #e69f00; --m: #2fc59a; --v: #cc79a7; --nonfinite: #ff7f2a;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text); font: 14px/1.45 system-ui, sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: 20px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 16px; margin: 28px 0 8px; border-bottom: 1px solid var(--edge); padding-bottom: 4px; }
p { margin: 4px 0; overflow-wrap: anywhere; }
a { color: var(--link); }
.note { color: var(--muted); font-weight: normal; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 4px 0 8px; }
th, td { text-align: left; padding: 2px 16px 2px 0; vertical-align: top; overflow-wrap: anywhere; }
th { color: var(--muted); font-weight: 600; }
.n { text-align: right; white-space: nowrap; }
.facts th { white-space: nowrap; padding-right: 24px; }
.evidence td { padding: 0 16px 0 0; }
td.error, td.warning, td.info { white-space: nowrap; }
.error { color: var(--error); } .warning { color: var(--warning); } .info { color: var(--info); }
details { margin: 8px 0; }
summary { cursor: pointer; font-weight: 600; }
article { border-left: 3px solid var(--edge); padding: 2px 0 2px 12px; margin: 8px 0; }
.error-edge { border-color: var(--error); }
.warning-edge { border-color: var(--warning); }
.info-edge { border-color: var(--info); }
figure { margin: 12px 0; }
figcaption { margin-bottom: 2px; overflow-wrap: anywhere; }
.key { margin-left: 12px; white-space: nowrap; }
.key i { display: inline-block; width: 16px; height: 3px; margin-right: 4px; vertical-align: middle; }
.key i.w { background: var(--w); } .key i.g { background: var(--g); } .key i.m { background: var(--m); }
.key i.v { background: var(--v); } .key i.update { background: var(--text); }
svg { display: block; width: 100%; height: auto; background: var(--raised); border-radius: 4px; }
svg .grid { stroke: var(--grid); stroke-width: 1; }
svg .tick { fill: var(--muted); font: 11px system-ui, sans-serif; font-variant-numeric: tabular-nums; }
svg .line { fill: none; stroke: var(--text); stroke-width: 1.3; stroke-linejoin: round; }
svg .dot { fill: var(--text); }
svg .line.w { stroke: var(--w); } svg .dot.w { fill: var(--w); }
svg .line.g { stroke: var(--g); } svg .dot.g { fill: var(--g); }
svg .line.m { stroke: var(--m); } svg .dot.m { fill: var(--m); }
svg .line.v { stroke: var(--v); } svg .dot.v { fill: var(--v); }
svg .nan, svg .inf { fill: var(--nonfinite); }
svg .zero { fill: var(--muted); }
svg .event { stroke-width: 1.5; stroke: var(--info); opacity: 0.75; }
svg .event.warning { stroke: var(--warning); stroke-dasharray: 5 3; }
svg .event.error { stroke: var(--error); }
@media print { details { break-inside: avoid; } figure { break-inside: avoid; } }
"""
