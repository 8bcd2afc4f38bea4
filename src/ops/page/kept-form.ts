import { z } from 'zod'
import { type Html, html } from './html.ts'

/** A form that was sent without a session: it comes back filled after signing in, and a person sends it again. */
export interface KeptForm {
  path: string
  fields: readonly (readonly [name: string, value: string])[]
}

/** Bytes that a form's fields may have together to be kept: what people write, not what fills a page. */
export const MOST_KEPT_BYTES = 20_000
const keptFields = z.array(z.tuple([z.string(), z.string()])).max(2_000)
const isKept = (json: string) => json.length <= MOST_KEPT_BYTES && Buffer.byteLength(json) <= MOST_KEPT_BYTES
/** One-time IDs of forms say nothing to people. */
const UNSHOWN = ['form', 'version']

/** A path of a page of ours, with its query; undefined for anything else, such as an address of another site. */
export function localPath(text: unknown): string | undefined {
  if (typeof text !== 'string' || text.length > 4_000 || !/^\/ops(?![^/?])[^\\\p{Cc}]*$/u.test(text)) return undefined
  const url = new URL(text, 'http://page')
  // What a form was answered with is for that time only.
  if (url.searchParams.has('done')) url.searchParams.delete('done')
  const isOurs = /^\/ops(\/|$)/.test(url.pathname) && !/^\/ops\/sign-(in|out)(\/|$)/.test(url.pathname)
  return isOurs ? url.pathname + url.search : undefined
}

/** The form that was sent to an address; undefined for one that is no form, is too large, or holds a password, which is not written into a page. */
export function keptFormOf(address: string, body: unknown): KeptForm | undefined {
  const path = localPath(address)
  if (path === undefined || typeof body !== 'object' || body === null || Object.keys(body).length === 0) return undefined
  const fields = Object.entries(body).flatMap(([name, value]) =>
    [value].flat().map((each): [string, string] => [name, String(each)]),
  )
  if (fields.some(([name]) => name.includes('password'))) return undefined
  return isKept(JSON.stringify(fields)) ? { path, fields } : undefined
}

/** The form that a sign-in form has carried. */
export function readKeptForm(path: string | undefined, json: string | undefined): KeptForm | undefined {
  const checkedPath = localPath(path)
  if (checkedPath === undefined || json === undefined || !isKept(json)) return undefined
  try {
    const fields = keptFields.safeParse(JSON.parse(json))
    return fields.success ? { path: checkedPath, fields: fields.data } : undefined
  } catch {
    return undefined
  }
}

/** Carries the form through the sign-in. */
export function carryForm({ path, fields }: KeptForm): Html {
  return html`<input type="hidden" name="kept_path" value="${path}"><input type="hidden" name="kept" value="${JSON.stringify(fields)}">`
}

/** The form again, filled; it is sent when a person says so. */
export function filledForm({ path, fields }: KeptForm): Html {
  const shown = fields.filter(([name, value]) => !UNSHOWN.includes(name) && value !== '')
  return html`<h1>You are signed in</h1>
<p>What you sent before was not carried out, as your session was over. This is it:</p>
<dl class="facts"><dt>To</dt><dd><code>${path}</code></dd>${shown.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
<form action="${path}" method="post">${fields.map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}
<button class="main">Continue: send it now</button> <a href="/ops">Leave it</a></form>`
}
