import { addressForms } from './explain-address.ts'
import { bodyForms } from './explain-body.ts'
import { otherProvider, unfoundSignature, withOptions } from './explain-missing.ts'
import { secretForms } from './explain-secret.ts'
import type { Provider, WebhookRequest } from './provider.ts'
import { providers } from './registry.ts'
import { type Keyring, type Reason, type SignatureScheme, type Verdict, verify } from './signature.ts'

/** What there may be behind a refusal, and what it means for whoever set the source up. */
export const EXPLANATIONS = {
  missing_signature:
    'The request carries no signature of this provider, or none of a version that it is known to sign with: it comes from somebody else, or something on the way drops it.',
  other_provider_header:
    'The request is signed as another provider signs: it was posted to the address of the wrong source, or the source names the wrong provider or options.',
  malformed_signature:
    'The signature does not have the form that this provider sends, or a part of it comes twice or without its time or ID.',
  body_reserialized:
    'The signature fits the body in another form: something on the way has read it and written it anew. Let it pass the bytes on as they are.',
  body_newline:
    'The signature fits the body with other line breaks or ends: something on the way has added, removed or converted them. Let it pass the bytes on as they are.',
  body_charset:
    'The signature fits the body in another character encoding: something on the way has converted it. Let it pass the bytes on as they are.',
  secret_encoding:
    'The signature fits a configured secret that is taken in another way: write the secret as this provider gives it out, whole and as it is, or set the option that says how it is encoded.',
  other_mode_secret:
    'The signature fits a source of the same provider and the other mode: test events are posted to the address for live ones, or the other way round.',
  other_source_secret:
    'The signature fits the secret of another source: it was posted to the wrong address, or the secrets are mixed up.',
  timestamp_too_old:
    'The signature is right, but the signed time lies further in the past than the tolerance allows: it was held up on its way, repeated by somebody, or the clock here is ahead.',
  timestamp_too_new:
    'The signature is right, but the signed time lies further in the future than the tolerance allows: compare the clocks.',
  url_differs:
    'The signature fits another form of the address: the configured one must be exactly the address that the provider was given.',
  bad_credentials: 'The user and password, or the token, are no configured ones.',
  body_hash_mismatch: 'The signature is right, but it says that the body has another hash: the body was changed on its way.',
  untrusted_cert_url:
    'The certificate that shall prove the signature lies at an address that is not the provider’s: somebody else made this request.',
  unsupported_algorithm: 'The signature names an algorithm that this provider does not use.',
  unexpected_topic:
    'The message is of a topic that this source does not list: add it to the options if it is yours; anybody can point a topic here.',
  no_matching_key: 'No configured secret is of the kind that this signature needs, or the key that it names is not known.',
  key_unavailable: 'The key that this signature names has to be fetched from the provider and is not here.',
  signature_mismatch:
    'No configured secret made this signature over exactly these bytes: the secret is another one, or what was signed was changed on its way.',
} as const satisfies Record<string, string>

export type Cause = keyof typeof EXPLANATIONS

/** What is said of a refusal. It holds no bytes of the body, no header's value and no secret. */
export interface Explanation {
  cause: Cause
  explanation: string
  /** What was found: names of sources and providers, numbers, and our own words. */
  detail?: string
}

/** What an explanation needs of a configured source. */
export interface ExplainedSource {
  name: string
  provider: Provider
  options: Readonly<Record<string, unknown>>
  secrets: readonly string[]
  mode: 'live' | 'test'
  toleranceSeconds: number
}

/** A refused request, and what is known around it. */
export interface Refused<Source extends ExplainedSource = ExplainedSource> {
  source: Source
  request: WebhookRequest
  reason: Reason | 'key_unavailable'
  nowSeconds: number
  /** Where the request was sent to, as far as it is known: an address or a path; else the path of the source's name. */
  url?: string
  /** All configured sources; the refusing one may be among them. */
  sources?: readonly Source[]
  /** The keys that are known; none is fetched. */
  ring?(source: Source): Keyring
  /** Asked before each try and each form that is made for one, so that whoever cannot wait ends them; the verifier's own reason is the cause then. */
  isOver?(): boolean
}

export type Finding = Omit<Explanation, 'explanation'>
type Look = (refused: Refused, tries: Tries) => Finding | undefined
/** Verifies again with one thing changed, whatever its time is; undefined when the tries are used up. */
export type Tries = (source: ExplainedSource, change?: Change) => Verdict | undefined
type Change = { scheme?: SignatureScheme; secrets?: readonly string[]; body?: Buffer }

const MOST_TRIES = 200
/** A body that is larger is not tried in other forms. */
const MOST_BYTES = 256 * 1024

/** Where to look, in this order, by the verifier's reason. The first finding is the cause. */
const LOOKS: Record<Refused['reason'], readonly Look[]> = {
  missing_signature: [otherSource, otherProvider, unfoundSignature],
  malformed_signature: [otherSource, otherProvider, unfoundSignature],
  signature_mismatch: [otherSource, otherSecret, otherAddress, otherBody],
  body_hash_mismatch: [otherBody],
  bad_credentials: [otherSource, otherSecret],
  no_matching_key: [otherSource, otherSecret],
  unexpected_topic: [otherSource],
  timestamp_too_old: [age],
  timestamp_too_new: [age],
  untrusted_cert_url: [],
  unsupported_algorithm: [],
  key_unavailable: [],
}

/** Says why a request was refused, by verifying it again with one thing changed at a time. Never for an attacker's eyes. */
export function explainRefusal<Source extends ExplainedSource>(refused: Refused<Source>): Explanation {
  // The ring only ever gets sources that came in with it, or copies of them.
  const any = refused as unknown as Refused
  const tries = triesOf(any)
  let found: Finding | undefined
  for (const look of LOOKS[refused.reason]) found ??= look(any, tries)
  const { cause, detail } = found ?? { cause: refused.reason }
  return { cause, explanation: EXPLANATIONS[cause], ...(detail !== undefined && { detail }) }
}

function triesOf({ request, nowSeconds, ring, isOver }: Refused): Tries {
  let left = MOST_TRIES
  return (source, { scheme = source.provider.scheme, secrets = source.secrets, body = request.body } = {}) => {
    if (left === 0 || isOver?.()) return undefined
    left -= 1
    // One that takes anything says nothing of who has signed.
    if ('isUnsigned' in scheme) return undefined
    return verify(scheme, { ...request, body }, secrets, nowSeconds, Number.POSITIVE_INFINITY, ring?.(source))
  }
}

function otherSource({ source, reason, sources = [] }: Refused, tries: Tries): Finding | undefined {
  const fitting = sources.find((other) => other.name !== source.name && tries(other)?.ok)
  if (!fitting) return undefined
  const { name, mode, provider } = fitting
  if (provider.name === source.provider.name && mode !== source.mode)
    return { cause: 'other_mode_secret', detail: `It fits source "${name}", which is of mode ${mode}.` }
  const isNoneHere = reason === 'missing_signature' || reason === 'malformed_signature'
  return {
    cause: isNoneHere && provider.name !== source.provider.name ? 'other_provider_header' : 'other_source_secret',
    detail: `It fits source "${name}".`,
  }
}

function otherSecret({ source }: Refused, tries: Tries): Finding | undefined {
  const { scheme } = source.provider
  if ('isUnsigned' in scheme) return undefined
  for (const { words, ...change } of secretForms(scheme, source.secrets)) {
    const verdict = tries(source, change)
    if (!verdict) break
    if (verdict.ok) return { cause: 'secret_encoding', detail: `It fits secret ${(verdict.secretIndex ?? 0) + 1} ${words}.` }
  }
  return undefined
}

function otherAddress({ source, request, url, isOver }: Refused, tries: Tries): Finding | undefined {
  const definition = providers.get(source.provider.name)
  const option = definition?.urlOption
  if (!definition || option === undefined) return undefined
  const configured = source.options[option]
  if (typeof configured !== 'string') return undefined
  const path = /^(?:[a-z]+:\/\/[^/?#]*)?([^?#]*)/i.exec(url ?? '')?.[1] || `/webhooks/${source.name}`
  for (const form of addressForms(configured, { headers: request.headers, path, query: request.query })) {
    if (isOver?.()) break
    const provider = withOptions(definition, { ...source.options, [option]: form.url })
    if (provider && tries({ ...source, provider })?.ok)
      return { cause: 'url_differs', detail: `It fits the address ${form.words}.` }
  }
  return undefined
}

function otherBody({ source, request, isOver = () => false }: Refused, tries: Tries): Finding | undefined {
  if (request.body.length > MOST_BYTES) return undefined
  for (const { cause, body, words } of bodyForms(request.body, isOver)) {
    const verdict = tries(source, { body })
    if (!verdict) break
    if (verdict.ok) return { cause, detail: `It fits the body ${words}.` }
  }
  return undefined
}

function age({ source, nowSeconds }: Refused, tries: Tries): Finding | undefined {
  const verdict = tries(source)
  if (!verdict?.ok || verdict.signedAt === undefined) return undefined
  const seconds = Math.round(nowSeconds - verdict.signedAt)
  const allowed = `${source.toleranceSeconds} s are allowed`
  return seconds > 0
    ? { cause: 'timestamp_too_old', detail: `It was signed ${seconds} s ago; ${allowed}.` }
    : { cause: 'timestamp_too_new', detail: `It is signed for a time ${-seconds} s ahead; ${allowed}.` }
}
