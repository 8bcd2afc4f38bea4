import type { Finding, Refused, Tries } from './explain.ts'
import type { Provider, ProviderDefinition, WebhookRequest } from './provider.ts'
import { createProvider, providers } from './registry.ts'
import type { SignatureScheme } from './signature.ts'

/** Finds the known providers that would sign a request like this one, its own with other options among them. */
export function otherProvider({ source, request, reason, sources = [] }: Refused, tries: Tries): Finding | undefined {
  const { scheme } = source.provider
  const configured = sources.map(({ provider }) => provider)
  const known = [...providers.values()].flatMap((definition) => {
    const isOwn = definition.name === source.provider.name
    // Without its second credential it would fit, and say nothing of that.
    if (isOwn && 'credential' in scheme) return []
    const title = isOwn ? `${definition.title}, with other options,` : definition.title
    const set = isOwn ? undefined : configured.find(({ name }) => name === definition.name)
    return [set ?? example(definition), ...variants(definition)].flatMap((provider) => (provider ? [{ title, provider }] : []))
  })
  const inForm = known.filter(({ provider }) => {
    const verdict = isTelling(provider.scheme) ? tries({ ...source, provider, secrets: [] }) : undefined
    return verdict && (verdict.ok || !['missing_signature', 'malformed_signature'].includes(verdict.reason))
  })
  const isElsewhere = reason === 'missing_signature' && !hasHeader(scheme, request)
  const withHeader = isElsewhere ? known.filter(({ provider }) => hasHeader(provider.scheme, request)) : []
  const titles = new Set((inForm.length > 0 ? inForm : withHeader).map(({ title }) => title))
  if (titles.size === 0) return undefined
  return { cause: 'other_provider_header', detail: `It is signed as ${[...titles].join(' or ')} would sign.` }
}

/** Any request may carry a user and a password, on its way through a proxy for example. */
function isTelling(scheme: SignatureScheme): boolean {
  return !('isUnsigned' in scheme) && scheme.signatures.some(({ encoding }) => encoding !== 'basic')
}

function hasHeader(scheme: SignatureScheme, { headers }: WebhookRequest): boolean {
  if (!isTelling(scheme) || 'isUnsigned' in scheme || 'proofs' in scheme) return false
  return scheme.signatures.some(({ header }) =>
    [header].flat().some((name) => headers[name]?.some((value) => value.trim() !== '')),
  )
}

/** Says where the signature of this provider should have been. */
export function unfoundSignature({ source: { provider }, request: { headers }, reason }: Refused): Finding | undefined {
  const { scheme } = provider
  if ('isUnsigned' in scheme) return undefined
  const cause = reason === 'missing_signature' ? reason : 'malformed_signature'
  const places = 'proofs' in scheme ? [] : [...scheme.signatures, scheme.timestamp, scheme.id]
  for (const place of [scheme.credential, ...places]) {
    if (!place) continue
    const names = [place.header].flat()
    const [value, ...more] = names.map((name) => headers[name] ?? []).find((values) => values.length > 0) ?? []
    const problem =
      value === undefined ? 'is missing' : more.length > 0 ? 'comes more than once' : value.trim() === '' && 'is empty'
    if (problem) return { cause, detail: `The header ${names.join(' or ')} ${problem}.` }
  }
  if ('proofs' in scheme) return { cause, detail: `It is looked for in ${scheme.place.replaceAll('`', '')}.` }
  return undefined
}

const examples = new Map<string, Provider | undefined>()

/** A provider as one would set it up, only to see where it looks for a signature; undefined where that needs more options. */
function example(definition: ProviderDefinition): Provider | undefined {
  const { name, urlOption } = definition
  if (!examples.has(name)) {
    examples.set(name, withOptions(definition, urlOption === undefined ? {} : { [urlOption]: 'https://example.com/' }))
  }
  return examples.get(name)
}

const variantsByName = new Map<string, readonly Provider[]>()

/** The other ways in which a provider signs. */
function variants(definition: ProviderDefinition): readonly Provider[] {
  const { name, guide } = definition
  const found =
    variantsByName.get(name) ?? (guide.variants ?? []).flatMap(({ options }) => withOptions(definition, { ...options }) ?? [])
  variantsByName.set(name, found)
  return found
}

/** A provider with other options than the configured ones; undefined where they will not do. */
export function withOptions({ name }: ProviderDefinition, options: Record<string, unknown>): Provider | undefined {
  try {
    return createProvider(name, options)
  } catch {
    return undefined
  }
}
