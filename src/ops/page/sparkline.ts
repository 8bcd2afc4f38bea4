import { type Html, html } from './html.ts'

const WIDTH = 240
const HEIGHT = 40
/** The line's own width must not be cut off at the edges. */
const EDGE = 2

/** A line through points that stand equally far apart, drawn by the server; where there is no point, there is no line. */
export function sparkline(values: readonly (number | null)[], label: string): Html {
  const highest = Math.max(0, ...values.map((value) => value ?? 0))
  const at = (index: number, value: number) => {
    const x = (index / Math.max(1, values.length - 1)) * WIDTH
    const y = HEIGHT - EDGE - (highest === 0 ? 0 : (value / highest) * (HEIGHT - 2 * EDGE))
    return `${x.toFixed(1)} ${y.toFixed(1)}`
  }
  let path = ''
  for (const [index, value] of values.entries()) {
    if (value === null) continue
    const goesOn = typeof values[index - 1] === 'number'
    path += `${goesOn ? 'L' : 'M'}${at(index, value)}`
    // One that stands alone is a dot: its line ends where it begins.
    if (!goesOn && typeof values[index + 1] !== 'number') path += 'h0.01'
  }
  return html`<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${label}"><path d="${path}" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" vector-effect="non-scaling-stroke"/></svg>`
}
