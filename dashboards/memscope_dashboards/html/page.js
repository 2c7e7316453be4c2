"use strict";
(async () => {
  const charts = JSON.parse(document.getElementById("chart-data").textContent);
  const problem = document.getElementById("charts-problem");
  const say = (text) => {
    problem.textContent = text;
    problem.hidden = false;
  };
  if (charts.length === 0) return;
  if (typeof DecompressionStream === "undefined") {
    say(
      "This browser cannot unpack the charts (it has no DecompressionStream). " +
        "Open the file in a current Chrome, Edge, Firefox or Safari. The tables are complete.",
    );
    return;
  }

  const unpack = async (id) => {
    const packed = atob(document.getElementById(id).textContent.trim());
    const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };

  // Figures use CSS variables for colours, so that they follow light and dark mode.
  const withColours = (value, style) => {
    if (typeof value === "string") {
      const name = /^var\((--[a-z-]+)\)$/.exec(value);
      return name ? style.getPropertyValue(name[1]).trim() : value;
    }
    if (Array.isArray(value)) return value.map((item) => withColours(item, style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, withColours(item, style)]),
    );
  };

  const options = {
    responsive: true,
    displaylogo: false,
    displayModeBar: matchMedia("(max-width: 640px)").matches ? false : "hover",
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
  };
  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    return Promise.all(
      charts.map(({ id, figure }) => {
        const { data, layout } = withColours(figure, style);
        return Plotly.react(document.getElementById(id), data, layout, options);
      }),
    );
  };

  try {
    const library = document.createElement("script");
    library.textContent = await unpack("plotly-gzip");
    document.head.append(library);
    await draw();
    document.documentElement.dataset.charts = "drawn";
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    addEventListener("beforeprint", draw);
  } catch (error) {
    say("The charts could not be drawn (" + error + "). The tables on this page are complete.");
  }
})();
