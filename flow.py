import json
print(json.dumps({"name":"t","tasks":{f"t{i}":{"run":"/bin/true"} for i in range(4000)}}))
