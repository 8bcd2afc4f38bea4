import { defineConfig, env, key } from 'oncehook'

const loginId = env.required('AUTHORIZE_NET_LOGIN_ID')
const transactionKey = env.required('AUTHORIZE_NET_TRANSACTION_KEY')

// Authorize.net's events name the transaction and nobody: the address comes from its API. `confirm` is meant for events that are
// not signed, and does just as well for those that say too little.
export default defineConfig({
  sources: {
    'authorize-net': {
      provider: 'authorize-net',
      secrets: env.list('AUTHORIZE_NET_WEBHOOK_SECRETS'),
      confirm: async (event) => {
        const isSubscription = event.eventType.startsWith('net.authorize.customer.subscription.')
        const merchantAuthentication = {
          name: loginId,
          transactionKey,
        }
        const answer = await fetch('https://api.authorize.net/xml/v1/request.api', {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify(
            isSubscription
              ? { ARBGetSubscriptionRequest: { merchantAuthentication, subscriptionId: event.payload.id } }
              : { getTransactionDetailsRequest: { merchantAuthentication, transId: event.payload.id } },
          ),
        })
        // biome-ignore lint/suspicious/noExplicitAny: the rules read it as they read a payload
        const { transaction, subscription } = (await answer.json()) as any
        if (!transaction && !subscription) throw new Error(`Authorize.net answered ${answer.status} without the object`)
        return { ...event, email: transaction?.customer?.email ?? subscription?.profile?.email }
      },
    },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'authorize-net',
      type: 'net.authorize.payment.authcapture.created',
      email: ({ payload, email }) =>
        email && {
          key: key('transaction', payload.id, 'captured'),
          to: email,
          from_email: 'billing@example.com',
          subject: 'We received your payment',
          html_body: '<p>Thank you, we received your payment.</p>',
        },
    },
    {
      name: 'refund',
      source: 'authorize-net',
      type: 'net.authorize.payment.refund.created',
      email: ({ payload, email }) =>
        email && {
          key: key('transaction', payload.id, 'refunded'),
          to: email,
          from_email: 'billing@example.com',
          subject: 'Your refund is on its way',
          html_body: '<p>We have refunded your payment.</p>',
        },
    },
    {
      name: 'subscription ended',
      source: 'authorize-net',
      type: ['net.authorize.customer.subscription.cancelled', 'net.authorize.customer.subscription.expired'],
      email: ({ payload, email }) =>
        email && {
          key: key('subscription', payload.id, 'ended'),
          to: email,
          from_email: 'billing@example.com',
          subject: 'Your subscription has ended',
          html_body: '<p>We are sorry to see you go.</p>',
        },
    },
  ],
})
