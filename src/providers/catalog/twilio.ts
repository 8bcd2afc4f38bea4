import { parse, stringify } from 'node:querystring'
import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts, type WebhookRequest } from '../provider.ts'
import { headerValue, type Proof, type Reason, type SignatureKind } from '../signature.ts'

const SETTINGS = 'x-twilio-webhooks-signature-settings'
// An auth token has no colon in it; a shared key may stand with its ID before it.
const secret = { form: 'text', keyId: 'optional' } as const
const kinds = {
  HMAC_SHA1: { kind: 'hmac', algorithm: 'sha1', encoding: 'base64', secret },
  HMAC_SHA256: { kind: 'hmac', algorithm: 'sha256', encoding: 'base64', secret },
} satisfies Record<string, SignatureKind>

function createTwilio(publicUrl: string): ProviderFacts {
  return {
    name: 'twilio',
    documentation: 'https://www.twilio.com/docs/usage/webhooks/webhooks-security',
    scheme: {
      signatures: Object.values(kinds),
      place: 'header `x-twilio-signature`',
      signed:
        'the public URL, with each form field sorted by name (name and value); of other bodies their `bodySHA256` in the URL',
      proofs: (request) => proofs(publicUrl, request),
    },
    factHeaders: ['i-twilio-idempotency-token'],
    idIsSigned: true,
    contentIsSigned: true,
    idBasis: 'derived',
    id: (event) => {
      const { sid, status } = statusOf(event) ?? {}
      return sid && `${sid}:${status}`
    },
    hashWithoutId: true,
    type: (event) => {
      const { about, status } = statusOf(event) ?? {}
      return about ? `${about}.${status}` : (field(event, 'EventType') ?? field(event, 'type'))
    },
    object: (event) => statusOf(event)?.sid,
    jsonText: ({ body }) => (body.length === 0 || isJson(body) ? undefined : formText(body)),
  }
}

/** Which message or call has which status; undefined for an event of another kind. */
function statusOf(event: unknown): { about: 'message' | 'call'; sid: string; status: string } | undefined {
  const message = text(event, 'MessageSid') ?? text(event, 'SmsSid')
  const sid = message ?? text(event, 'CallSid')
  const status = message ? (text(event, 'MessageStatus') ?? text(event, 'SmsStatus')) : text(event, 'CallStatus')
  return sid && status ? { about: message ? 'message' : 'call', sid, status } : undefined
}

function text(event: unknown, name: string): string | undefined {
  const value = field(event, name)
  return typeof value === 'string' && value !== '' ? value : undefined
}

function proofs(publicUrl: string, { headers, body, query }: WebhookRequest): readonly Proof[] | Reason {
  const [header = '', ...more] = headers['x-twilio-signature'] ?? []
  if (header.trim() === '') return 'missing_signature'
  if (more.length > 0 || !/^[A-Za-z0-9+/]{27}(?:[A-Za-z0-9+/]{16})?=$/.test(header)) return 'malformed_signature'
  const settings = settingsOf(headers)
  if (settings === undefined) return 'unsupported_algorithm'

  const url = urlOf(publicUrl, query)
  // Cut rightly, the text of a signed form could pass for JSON as well: what is read as JSON needs the hash.
  const bodySha256 = new URL(url).searchParams.get('bodySHA256') ?? (isJson(body) ? '' : undefined)
  const fields = bodySha256 === undefined ? signedFields(body) : ''
  const texts = spellings(url).map((spelling) => [spelling, fields])
  return [
    {
      signatures: [{ kind: settings.kind, given: [header], keyId: settings.keyId }],
      signed: () => texts,
      ...(bodySha256 !== undefined && { bodySha256 }),
    },
  ]
}

/** How it is signed: by the auth token and SHA-1, unless the settings say otherwise; undefined when that is nothing we know. */
function settingsOf(headers: WebhookRequest['headers']): { kind: SignatureKind; keyId?: string | undefined } | undefined {
  if ((headers[SETTINGS] ?? []).every((value) => value.trim() === '')) return { kind: kinds.HMAC_SHA1 }
  const given = headerValue(headers, SETTINGS)
  if (given === undefined) return undefined
  const parts = new Map(
    given.split(',').map((part): [string, string] => {
      const [name = '', ...value] = part.split('=')
      return [name.trim(), value.join('=').trim()]
    }),
  )
  // As in Twilio's library: SHA-1 where nothing is said, and letter case doesn't count.
  const algorithm = (parts.get('algorithm') || 'HMAC_SHA1').toUpperCase()
  return algorithm === 'HMAC_SHA1' || algorithm === 'HMAC_SHA256'
    ? { kind: kinds[algorithm], keyId: parts.get('key') || undefined }
    : undefined
}

/** The URL that Twilio requested: it adds `bodySHA256` to the query of the one that it was given. */
function urlOf(publicUrl: string, query = ''): string {
  const [base, own] = split(publicUrl)
  const isLonger = own === '' ? query !== '' : query.startsWith(`${own}&`)
  return isLonger ? `${base}?${query}` : publicUrl
}

/** The ways in which Twilio is known to sign one URL: with its port or without, and with its query encoded anew. */
function spellings(url: string): string[] {
  const parsed = new URL(url)
  const port = parsed.port || (parsed.protocol === 'https:' ? '443' : '80')
  parsed.port = ''
  const ported = parsed.href.replace(/^https?:\/\/[^/]*/, (origin) => `${origin}:${port}`)
  // On the text itself too: what a URL parser would write otherwise (é, a blank) is signed as it was given.
  const [plain, withPort] = ['', `:${port}`].map((end) => url.replace(/^(https?:\/\/[^/:?#]*)(?::\d+)?/i, `$1${end}`))
  const both = [parsed.href, ported, plain ?? url, withPort ?? url]
  const encoded = both.map((href) => {
    const [base, query] = split(href)
    return query === '' ? href : `${base}?${stringify(parse(query))}`
  })
  return [...new Set([url, ...both, ...encoded])]
}

function split(url: string): [base: string, query: string] {
  const at = url.indexOf('?')
  return at < 0 ? [url, ''] : [url.slice(0, at), url.slice(at + 1)]
}

/** Told by the bytes, not by Content-Type, which nothing protects: no name of a field starts like this. */
function isJson(body: Buffer): boolean {
  return /^\s*[{[]/.test(body.toString())
}

/** The fields of a form with all their values. */
function fieldsOf(body: Buffer): [name: string, values: string[]][] {
  const groups = Map.groupBy(new URLSearchParams(body.toString()), ([name]) => name)
  return Array.from(groups, ([name, pairs]) => [name, pairs.map(([, value]) => value)])
}

function signedFields(body: Buffer): string {
  return fieldsOf(body)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .flatMap(([name, values]) => [...new Set(values)].sort().map((value) => name + value))
    .join('')
}

function formText(body: Buffer): string {
  return JSON.stringify(
    Object.fromEntries(fieldsOf(body).map(([name, values]) => [name, values.length > 1 ? values : values[0]])),
  )
}

/** Twilio, status callbacks and events (twilio.com/docs, webhooks security; twilio 6.3 `webhooks.ts`). */
export const twilio = defineProvider({
  name: 'twilio',
  title: 'Twilio',
  options: z.strictObject({
    /** The address as Twilio has it. */
    publicUrl: z.url({ protocol: /^https?$/ }),
  }),
  urlOption: 'publicUrl',
  create: ({ publicUrl }) => createTwilio(publicUrl),
  guide: {
    setUp:
      'Give `https://YOUR-HOST/webhooks/twilio` as the status callback of a messaging service, of a phone number, or of single messages and calls, method POST. `publicUrl` must be that address to the letter, with its query if it has one, since it is signed.',
    options: `publicUrl: 'https://YOUR-HOST/webhooks/twilio'`,
    secret:
      'The auth token of the account, from the Console. With a shared key (new at Twilio: the header `X-Twilio-Webhooks-Signature-Settings` names it and says SHA-256): the key’s secret, or `KEY_ID:SECRET`, which then counts for that key only. List both tokens while one replaces the other.',
    identity:
      'Twilio gives no ID: `MessageSid:MessageStatus`, else `SmsSid:SmsStatus`, else `CallSid:CallStatus`; the type is `message.` or `call.` and the status, as in `message.delivered`. Other events: the hash of the body; the type is `EventType`, else `type`. Rules get the fields of a form as text.',
    unsigned:
      'Nothing of the event: the URL and all fields are signed, and of a JSON body its hash. But fields are signed without anything between them: somebody who has seen a signed form can post its text cut into other fields. There is no signed time: only the ID stops a replay.',
    retries:
      'Whether a status callback comes again after a failure is a setting at Twilio; by default hardly at all. A repeat carries the header `I-Twilio-Idempotency-Token`, and Twilio is said to wait for 15 s: neither is confirmed.',
    traps: [
      'The URL is tried with its port and without, and with its query encoded anew, as Twilio’s library does.',
      'JSON bodies come with `bodySHA256` in the query, so no proxy may drop the query.',
      'Our answer is JSON, no TwiML: addresses that Twilio asks what to do (an incoming call or message) don’t belong here.',
      'One status that is reported twice with other fields counts as a conflict.',
      'Nothing tells a test, and no field tells the time.',
    ],
  },
  sample: {
    types: {},
    newId: (unique) => `SM${unique.padStart(32, '0')}`,
    request: ({ type, id, email, options }, sign) => {
      const [about = '', status] = type.split('.')
      const sample = new URLSearchParams({
        ...(about === 'call' ? { CallSid: id } : { MessageSid: id }),
        ...(status === undefined ? { EventType: type } : { [about === 'call' ? 'CallStatus' : 'MessageStatus']: status }),
        AccountSid: 'AC00000000000000000000000000000001',
        Body: `A receipt for ${email}`,
        From: '+15005550006',
        To: '+15005550001',
      }).toString()
      const signature = sign(`${options.publicUrl}${signedFields(Buffer.from(sample))}`)
      return {
        headers: { 'content-type': 'application/x-www-form-urlencoded; charset=UTF-8', 'x-twilio-signature': signature },
        body: sample,
      }
    },
  },
})
