/** PHP's own bound. Each field costs time before anybody is known, and no webhook has a tenth of them. */
const MOST_FIELDS = 1_000

/** The fields of a form; undefined where there are more than any webhook has. */
export function readForm(body: Buffer): URLSearchParams | undefined {
  return hasTooManyFields(body) ? undefined : new URLSearchParams(body.toString())
}

/** Tells, without reading it, whether a form has more fields than any webhook. */
export function hasTooManyFields(body: Buffer): boolean {
  let fields = 1
  for (let at = body.indexOf('&'); at >= 0; at = body.indexOf('&', at + 1)) if (++fields > MOST_FIELDS) return true
  return false
}
