import { z } from 'zod'
import { generic } from './generic.ts'
import { github } from './github.ts'
import { gocardless } from './gocardless.ts'
import { inboxili } from './inboxili.ts'
import type { Provider, ProviderDefinition } from './provider.ts'
import { standardWebhooks, svix } from './standard-webhooks.ts'
import { stripe } from './stripe.ts'

/** Every provider that a source can name, by name. */
export const providers: ReadonlyMap<string, ProviderDefinition> = new Map(
  [stripe, standardWebhooks, svix, github, gocardless, inboxili, generic].map((each): [string, ProviderDefinition] => [
    each.name,
    each,
  ]),
)

/** A provider with one source's options; throws at an unknown name, and at options that are wrong or unknown. */
export function createProvider(name: string, options: unknown = {}): Provider {
  const definition = providers.get(name)
  if (!definition) throw new Error(`unknown provider "${name}"; known are ${[...providers.keys()].join(', ')}`)
  const parsed = definition.options.safeParse(options)
  if (!parsed.success) throw new Error(`options of provider "${name}":\n${z.prettifyError(parsed.error)}`)
  return definition.create(parsed.data)
}
