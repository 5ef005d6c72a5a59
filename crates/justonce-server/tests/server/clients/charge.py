"""Charges a card as an application would: with the SDK's defaults, its own key and its retries."""

import json
import sys

import stripe

base, retries, timeout = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
stripe.api_key = "sk_test_justonce"
stripe.api_base = base
stripe.max_network_retries = retries
stripe.enable_telemetry = False
stripe.default_http_client = stripe.RequestsClient(timeout=timeout, proxy={})
try:
    charge = stripe.Charge.create(
        amount=2000,
        currency="eur",
        source="tok_visa",
        description="10% off & more = ü",
        metadata={"order": "17"},
    )
    told = {"id": charge.id, "object": charge.object, "amount": charge.amount}
except stripe.StripeError as error:
    told = {"error": type(error).__name__, "status": error.http_status}
print(json.dumps(told))
